"""Which landmark is it?

Transfer learning in Keras 3, on TensorFlow, JAX or PyTorch, and on all devices of one machine.

python examples/landmarks_keras.py                                          # made photographs, a
small backbone python examples/landmarks_keras.py --data photos --backbone MobileNetV2 --weights
imagenet --freeze-backbone python examples/landmarks_keras.py --shards "shards/{}-*.tar"
# train-000.tar, ..., val-000.tar, ...
"""

import argparse
import contextlib

import made
import numpy as np

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--shards", help="tar shards instead; {} stands for train and val")
parser.add_argument(
    "--backbone", default="small", help="or the name of a model in keras.applications"
)
parser.add_argument("--weights", help='"imagenet" (downloads them), or a file')
parser.add_argument("--freeze-backbone", action="store_true")
parser.add_argument("--mixed-precision", action="store_true")
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--size", type=int, default=64, help="height and width, pixels")
parser.add_argument("--backup", help="folder for backups; after a crash the run resumes from it")
args = parser.parse_args()

import keras  # noqa: E402  after the arguments: --help should not wait for it

if args.mixed_precision:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")


def all_devices():
    """A scope in which Keras trains on every device of this machine, and their number."""
    if keras.backend.backend() == "jax":
        parallel = keras.distribution.DataParallel()
        return parallel.scope(), parallel.device_mesh.devices.size
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if len(tf.config.list_logical_devices("GPU")) > 1:
            strategy = tf.distribute.MirroredStrategy()
            return strategy.scope(), strategy.num_replicas_in_sync
    return contextlib.nullcontext(), 1


def backbone(pixels):
    """Features of an image whose values lie in [-1, 1], as most of keras.applications want them."""
    if args.backbone != "small":
        load = getattr(keras.applications, args.backbone)
        features = load(
            include_top=False, weights=args.weights, input_shape=pixels.shape[1:], pooling="avg"
        )
        features.trainable = not args.freeze_backbone
        return features(pixels, training=False if args.freeze_backbone else None)
    x = pixels
    for filters in (32, 48, 64, 96):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.MaxPooling2D()(keras.layers.ReLU()(x))
    return keras.layers.GlobalAveragePooling2D()(x)


if args.shards:
    train = ff.TarShards(args.shards.format("train"))
    val = ff.TarShards(args.shards.format("val"), classes=train.classes)
else:
    root = made.photographs(args.data)
    train = ff.ImageFolder(root / "train")
    val = ff.ImageFolder(root / "val", classes=train.classes)

scope, devices = all_devices()
plan = ff.scaling.plan_batch(
    base_batch=16, base_lr=2e-3, world=devices, rule="sqrt", warmup_epochs=2
)
print(plan)

values = ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # to [-1, 1]
crops = [ff.RandomResizedCrop(args.size, scale=(0.35, 1)), ff.RandomFlip(), values]
middle = [ff.Resize(args.size * 8 // 7), ff.CenterCrop(args.size), values]
feed = ff.Feed(
    train,
    crops,
    batch=plan.global_batch,
    seed=0,
    quarantine=args.backup and args.backup + ".bad.jsonl",
)
held_out = ff.Feed(val, middle, batch=plan.global_batch, shuffle=False, tail="pad", on_bad="mask")
print(feed)

counts = np.bincount(train.label(np.arange(len(train))))
class_weight = {
    label: len(train) / (len(counts) * count) for label, count in enumerate(counts) if count
}

with scope:
    pixels = keras.Input((args.size, args.size, 3))
    head = keras.layers.Dropout(0.2)(backbone(pixels))
    model = keras.Model(pixels, keras.layers.Dense(len(counts), dtype="float32")(head))
    model.compile(
        keras.optimizers.Adam(plan.lr),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],  # masked samples weigh 0
    )
    callbacks = [keras.callbacks.LearningRateScheduler(plan.at_epoch)]
    if args.backup:
        callbacks.append(ff.keras.backup(feed, args.backup))
    callbacks.append(ff.Watch(feed, every=5))  # feed_wait and feed_rate in the log
    history = model.fit(
        feed.to_keras(class_weight=class_weight),
        validation_data=held_out.to_keras(),
        epochs=args.epochs,
        callbacks=callbacks,
        verbose=2,
    ).history

print(f"accuracy {max(history['val_accuracy'][-3:]):.2f}, chance {1 / len(counts):.2f}")
print(feed.stats())
