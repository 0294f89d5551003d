"""All GPUs of one machine, one process: Keras on JAX by DataParallel, TensorFlow by your own loop.

KERAS_BACKEND=jax python examples/keras_multi_gpu.py
KERAS_BACKEND=tensorflow python examples/keras_multi_gpu.py  # MirroredStrategy

Where there is no GPU, the CPU is divided into two devices.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # of CPUs alone
os.environ.setdefault("NPROC", "8")  # threads of XLA: each device needs one, also on two cores

import keras
import made

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=25)
args = parser.parse_args()
root = made.photographs(args.data)

train = ff.ImageFolder(root / "train")
val = ff.ImageFolder(root / "val", classes=train.classes)
values = ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
crops = [ff.RandomResizedCrop(32, scale=(0.35, 1)), ff.RandomFlip(), values]
feed = ff.Feed(train, crops, batch=16, seed=0)  # of all devices together
held_out = ff.Feed(val, [ff.Resize((32, 32)), values], batch=16, shuffle=False, tail="pad")


def network():
    """A small classifier. Its variables are on every device of the scope that it is made in."""
    net = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 48, 64):
        net.add(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
        net.add(keras.layers.MaxPooling2D())
    net.add(keras.layers.GlobalAveragePooling2D())
    net.add(keras.layers.Dense(len(train.classes)))
    return net


def with_jax():
    """Keras's fit: each device gets its rows of every batch."""
    parallel = keras.distribution.DataParallel()
    with parallel.scope():
        net = network()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(keras.optimizers.Adam(2e-3), loss, weighted_metrics=["accuracy"])
        net.fit(feed.to_keras(), epochs=args.epochs, verbose=2)
        _, accuracy = net.evaluate(held_out.to_keras(), verbose=0)
    return parallel.device_mesh.devices.size, accuracy


def with_tensorflow():
    """A loop of your own: TensorFlow gives each device its piece of every batch."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        (cpu, *_) = tf.config.list_physical_devices("CPU")
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    strategy = tf.distribute.MirroredStrategy(names)
    with strategy.scope():
        net = network()
        optimizer = keras.optimizers.Adam(2e-3)
        optimizer.build(net.trainable_variables)

    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
            loss = tf.reduce_sum(losses) / feed.plan.global_batch
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))

    @tf.function
    def train_step(batch):
        strategy.run(step, args=batch)

    data = strategy.experimental_distribute_dataset(feed.to_tfdata())
    for _ in range(args.epochs):
        for batch in data:
            train_step(batch)
    right = keras.metrics.SparseCategoricalAccuracy()
    for images, labels in held_out.to_tfdata():
        right.update_state(labels, net(images))
    return strategy.num_replicas_in_sync, float(right.result())


run = {"jax": with_jax, "tensorflow": with_tensorflow}[keras.backend.backend()]
devices, accuracy = run()
print(f"{devices} devices, {keras.backend.backend()}")
print(f"accuracy {accuracy:.2f}, chance {1 / len(train.classes):.2f}")
print(feed.stats())
