"""A small convolutional classifier that learns from a few hundred images on a CPU in a minute."""

from __future__ import annotations

import keras
from keras import layers

IMAGE_SIZE = 96  # height and width, pixels
CROP_SCALE = (0.35, 1.0)  # share of a photograph's area that a training crop shows
BATCH = 16  # images
PEAK_RATE = 2e-3
PASSES = (1, 60)  # minimum and maximum epochs
BUDGET = 4_800  # images seen in training, all epochs together: about half a minute on one core


def epochs_for(images: int) -> int:
    """Number of epochs to train: small sets get more, so that the time stays about the same."""
    minimum, maximum = PASSES
    return min(max(round(BUDGET / max(images, 1)), minimum), maximum)


def build(classes: int, size: int, steps: int) -> keras.Model:
    """Compile a model for float32 (batch, size, size, 3); `steps` counts the whole run."""
    pixels = keras.Input((size, size, 3))
    x = _convolve(pixels, 32, kernel=5, stride=2)
    for filters in (48, 96, 128):
        x = layers.MaxPooling2D()(x)
        x = _convolve(x, filters)
        x = layers.add([x, _convolve(x, filters)])
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.3)(x)
    model = keras.Model(pixels, layers.Dense(classes)(x), name="small_photo_classifier")
    # The rate ends at zero: on tiny batches only the last, slow epochs settle the weights.
    warmup = max(steps // 10, 1)
    rate = keras.optimizers.schedules.CosineDecay(
        PEAK_RATE / 20, max(steps - warmup, 1), warmup_target=PEAK_RATE, warmup_steps=warmup
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(rate, weight_decay=0.02),
        loss=smoothed_loss,
        weighted_metrics=["accuracy"],  # padding and masked samples carry weight 0
        jit_compile=False,  # compiling costs more seconds than it saves in a run this short
    )
    return model


def smoothed_loss(labels: keras.KerasTensor, logits: keras.KerasTensor) -> keras.KerasTensor:
    """Cross-entropy of integer labels with label smoothing: shape (batch,)."""
    targets = keras.ops.one_hot(keras.ops.reshape(labels, (-1,)), logits.shape[-1])
    return keras.losses.categorical_crossentropy(
        targets, logits, from_logits=True, label_smoothing=0.1
    )


def _convolve(
    x: keras.KerasTensor, filters: int, kernel: int = 3, stride: int = 1
) -> keras.KerasTensor:
    x = layers.Conv2D(
        filters, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)
    # Keras's 0.99 needs more steps than a small set has
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x)
