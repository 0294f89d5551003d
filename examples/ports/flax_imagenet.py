"""The data path of Flax's ImageNet example: TFRecords of TFDS on all devices, whole evaluation.

https://github.com/google/flax/tree/main/examples/imagenet
"""

import data
import jax
import jax.numpy as jnp

import fastfeed as ff


def feeds(root, batch=8, side=64, resized=73, world=None):
    parts = [sorted(root.glob(f"{part}-*")) for part in ("train", "validation")]
    train, val = (ff.TFRecords(part, image="image", label="label") for part in parts)
    crop = ff.RandomResizedCrop(side, ratio=(3 / 4, 4 / 3), filter="bicubic")
    middle = [ff.Resize(resized, filter="bicubic"), ff.CenterCrop(side), ff.Normalize.imagenet()]
    common = {"batch": batch, "world": world}
    train = ff.Feed(train, [crop, ff.RandomFlip(), ff.Normalize.imagenet()], **common)
    return train, ff.Feed(val, middle, **common, shuffle=False, tail="pad")


def loaders(train, val):
    mesh = jax.sharding.Mesh(jax.devices(), "batch")
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    fields = {"image": "image", "label": "label"}
    weighted = fields | {"weight": "weight"}
    return train.to_jax(rows, yields=fields), val.to_jax(rows, yields=weighted)


def main():
    given = data.options()
    root = data.temporary(lambda folder: data.records(folder, ("image", "label"), 0), given.data)
    train, val = loaders(*feeds(root))

    @jax.jit
    def losses(weights, batch):
        pixels = batch["image"].reshape(len(batch["label"]), -1)
        chances = jax.nn.log_softmax(pixels @ weights)
        return -jnp.take_along_axis(chances, batch["label"][:, None], axis=1)[:, 0]

    weights = jnp.zeros((64 * 64 * 3, 3))
    gradient = jax.jit(jax.grad(lambda weights, batch: losses(weights, batch).mean()))
    for _, batch in zip(range(given.steps), train, strict=False):
        weights -= 1e-4 * gradient(weights, batch)
    sums = [((losses(weights, b) * b["weight"]).sum(), b["weight"].sum()) for b in val]
    total, count = map(sum, zip(*sums, strict=True))
    print(f"loss {total / count:.3f} of {int(count)} images")


if __name__ == "__main__":
    main()
