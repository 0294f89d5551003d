"""Small made data in the forms that the ports read. No part of fastfeed's API."""

import argparse
import io
import json
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("arch", "bridge", "tower")


def options(parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    """--data, your own data in the same form, or made data; --steps of training, at most."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def temporary(make, given: Path | None) -> Path:
    """The folder that was given, or a new one that `make` has filled."""
    if given is not None:
        return given
    folder = Path(tempfile.mkdtemp())
    make(folder)
    return folder


def image(seed: int, size: tuple[int, int] = (72, 96)) -> tuple[Image.Image, list[int], int]:
    """A picture (height, width) with one shape on it; its box x, y, width, height; its class."""
    rng = np.random.default_rng(seed)
    height, width = size
    slope = np.linspace(0, 1, width)[None, :, None] * np.linspace(0.3, 1, height)[:, None, None]
    picture = Image.fromarray((slope * rng.uniform(60, 200, 3)).astype(np.uint8))
    kind = seed % len(CLASSES)
    x, y = rng.integers(4, width // 3), rng.integers(4, height // 3)
    box = [int(x), int(y), width // 2, height // 2]
    corners = (x, y, x + box[2] - 1, y + box[3] - 1)
    draw = ImageDraw.Draw(picture)
    shape = (draw.rectangle, draw.ellipse, lambda at, fill: draw.line(at, fill, 5))[kind]
    shape(corners, fill=tuple(map(int, rng.integers(180, 256, 3))))
    return picture, box, kind


def class_folders(root: Path, train: int = 48, val: int = 20) -> None:
    """root/train/CLASS/*.jpg and root/val/CLASS/*.jpg."""
    for part, count in (("train", train), ("val", val)):
        for i in range(count):
            picture, _, kind = image(i if part == "train" else 10_000 + i)
            folder = root / part / CLASSES[kind]
            folder.mkdir(parents=True, exist_ok=True)
            picture.save(folder / f"{i:04}.jpg", quality=92)


def segmented(root: Path, train: int = 24, val: int = 8) -> None:
    """root/PART/images/*.jpg, root/PART/masks/*.png: 0 background, 1 to 3 classes, 255 unknown."""
    for part, first, count in (("train", 0, train), ("val", 10_000, val)):
        for form in ("images", "masks"):
            (root / part / form).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + count):
            picture, (x, y, width, height), kind = image(i)
            classes = np.zeros((picture.height, picture.width), np.uint8)
            classes[max(0, y - 1) : y + height + 1, max(0, x - 1) : x + width + 1] = 255
            classes[y : y + height, x : x + width] = 1 + kind
            picture.save(root / part / "images" / f"{i:05}.jpg", quality=92)
            Image.fromarray(classes).save(root / part / "masks" / f"{i:05}.png")


def coco(root: Path, count: int = 24) -> None:
    """root/images/*.jpg and root/instances.json: some images have no object, or nothing but a crowd."""
    (root / "images").mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for i in range(count):
        picture, box, kind = image(i)
        picture.save(root / "images" / f"{i:05}.jpg", quality=92)
        size = {"width": picture.width, "height": picture.height}
        images.append({"id": 100 + i, "file_name": f"{i:05}.jpg", **size})
        for crowd in range(i % 6 == 5, 0 if i % 5 == 4 else 1 + i % 2):
            own = {"id": len(annotations) + 1, "image_id": 100 + i, "category_id": 10 * (1 + kind)}
            annotations.append({**own, "bbox": box, "iscrowd": crowd, "area": box[2] * box[3]})
    categories = [{"id": 10 * (1 + k), "name": name} for k, name in enumerate(CLASSES)]
    parts = {"images": images, "annotations": annotations, "categories": categories}
    (root / "instances.json").write_text(json.dumps(parts))


def polygons(root: Path, count: int = 24) -> None:
    """The same with a diamond in each box; crowds are runs, the left half of the box."""
    coco(root, count)
    parts = json.loads((root / "instances.json").read_text())
    sizes = {image["id"]: (image["height"], image["width"]) for image in parts["images"]}
    for own in parts["annotations"]:
        x, y, width, height = own["bbox"]
        high, wide = sizes[own["image_id"]]
        middle, center = y + height / 2, x + width / 2
        own["segmentation"] = [[center, y, x + width, middle, center, y + height, x, middle]]
        if own["iscrowd"]:
            column = [high - height, height]
            counts = [x * high + y, *(column[::-1] * (width // 2))]
            counts[-1] += high * wide - sum(counts)
            own["segmentation"] = {"size": [high, wide], "counts": counts}
    (root / "instances.json").write_text(json.dumps(parts))


SIDED = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
POINTS = ("nose", *(f"{side}_{part}" for part in SIDED for side in ("left", "right")))  # of COCO


def persons(root: Path, count: int = 16) -> None:
    """root/images/*.jpg and root/persons.json: one person in each, some points not labeled."""
    coco(root, count)
    file = json.loads((root / "instances.json").read_text())
    annotations = []
    for i, place in enumerate(file["images"]):
        _, (x, y, width, height), _ = image(i)
        points = []
        for k in range(len(POINTS)):
            seen = (0, 1, 2, 2)[(i + k) % 4]
            at = [x + k * width // 20, y + (7 * k % 17) * height // 20] if seen else [0, 0]
            points += [*at, seen]
        own = {"id": i + 1, "image_id": place["id"], "category_id": 1, "iscrowd": 0}
        box = {"bbox": [x, y, width, height], "area": width * height}
        found = sum(seen > 0 for seen in points[2::3])
        annotations.append({**own, **box, "keypoints": points, "num_keypoints": found})
    person = {"id": 1, "name": "person", "keypoints": list(POINTS)}
    parts = {"images": file["images"], "annotations": annotations, "categories": [person]}
    (root / "persons.json").write_text(json.dumps(parts))


def captioned(root: Path, count: int = 32) -> None:
    """root/*.jpg and root/metadata.jsonl with a caption of each, as an "imagefolder" has it."""
    root.mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(count):
        picture, _, kind = image(i, (80, 80 + i % 3 * 20))
        picture.save(root / f"{i:04}.jpg", quality=92)
        lines.append(json.dumps({"file_name": f"{i:04}.jpg", "text": caption(i, kind)}))
    (root / "metadata.jsonl").write_text("\n".join(lines) + "\n")


def caption(i: int, kind: int) -> str:
    return f"{'an old' if i % 2 else 'a new'} {CLASSES[kind]}, photo {i}"


def tars(root: Path, shards: int = 3, samples: int = 12) -> None:
    """root/0000.tar and so on: members KEY.jpg and KEY.txt, a caption, as WebDataset has them."""
    root.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(root / f"{shard:04}.tar", "w") as tar:
            for i in range(shard * samples, (shard + 1) * samples):
                picture, _, kind = image(i)
                jpeg = io.BytesIO()
                picture.save(jpeg, "JPEG", quality=92)
                for suffix, content in ("jpg", jpeg.getvalue()), ("txt", caption(i, kind).encode()):
                    member = tarfile.TarInfo(f"{i:06}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def tokens(captions: list[str], length: int = 8) -> np.ndarray:
    """A stand-in for a tokenizer: int64 (n, length), 0 for padding."""
    ids = np.zeros((len(captions), length), np.int64)
    for row, text in enumerate(captions):
        words = [1 + zlib.crc32(word.encode()) % 999 for word in text.split()][:length]
        ids[row, : len(words)] = words
    return ids


def digits(count: int = 64) -> np.ndarray:
    """Gray images as MNIST has them: uint8 (n, 28, 28)."""
    drawn = [image(i, (28, 28))[0].convert("L") for i in range(count)]
    return np.stack([np.asarray(picture) for picture in drawn])


def captchas(root: Path, count: int = 40) -> None:
    """root/TEXT.png: four letters, drawn on noise."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for _ in range(count):
        text = "".join(rng.choice(list("2345bcdegmnpwxy"), 4))
        picture = Image.fromarray(rng.integers(180, 256, (50, 200, 3), np.uint8))
        ImageDraw.Draw(picture).text((20, 10), text, fill=(0, 0, 90), font_size=28)
        picture.save(root / f"{text}.png")


def trimaps(root: Path, count: int = 24) -> None:
    """root/images/*.jpg, root/masks/*.png: 1 object, 2 background, 3 edge."""
    segmented(root / "made", train=count, val=0)
    for form in ("images", "masks"):
        (root / "made" / "train" / form).rename(root / form)
    for path in (root / "masks").iterdir():
        classes = np.asarray(Image.open(path))
        edge = np.where(classes == 255, 3, 1)
        Image.fromarray(np.where(classes == 0, 2, edge).astype(np.uint8)).save(path)


def cifar(root: Path, train: int = 48, test: int = 20) -> None:
    """root/train.npz and root/test.npz: images, uint8 (n, 32, 32, 3), and labels."""
    root.mkdir(parents=True, exist_ok=True)
    for part, first, count in (("train", 0, train), ("test", 10_000, test)):
        drawn = [image(i, (32, 32)) for i in range(first, first + count)]
        pixels = np.stack([np.asarray(picture) for picture, _, _ in drawn])
        np.savez(root / f"{part}.npz", images=pixels, labels=np.array([kind for *_, kind in drawn]))


def mnist(root: Path, train: int = 48, test: int = 20) -> None:
    """The four idx files of gray images, uint8 (n, 28, 28), and labels."""
    root.mkdir(parents=True, exist_ok=True)
    for part, first, count in (("train", 0, train), ("t10k", 10_000, test)):
        drawn = [image(i, (28, 28)) for i in range(first, first + count)]
        pixels = np.stack([np.asarray(picture.convert("L")) for picture, _, _ in drawn])
        labels = np.array([kind for *_, kind in drawn], np.uint8)
        for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(">HBB", 0, 8, array.ndim) + np.array(array.shape, ">u4").tobytes()
            (root / f"{part}-{name}-ubyte").write_bytes(head + array.tobytes())


def mds(root: Path, train: int = 48, test: int = 20) -> None:
    """root/train and root/test: an MDS shard with the columns x, a PNG, and y, its class."""
    columns = {"names": ["x", "y"], "encodings": ["png", "int"], "sizes": [None, 8]}
    about = {f"column_{key}": value for key, value in columns.items()}
    common = {"version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": None}
    head = json.dumps(common | about, sort_keys=True).encode()
    for part, first, count in (("train", 0, train), ("test", 10_000, test)):
        rows = []
        for i in range(first, first + count):
            picture, _, kind = image(i, (32, 32))
            png = io.BytesIO()
            picture.save(png, "PNG")
            rows.append(struct.pack("<I", png.tell()) + png.getvalue() + struct.pack("<q", kind))
        ends = np.cumsum([4 * (count + 2) + len(head), *map(len, rows)]).astype("<u4")
        shard = struct.pack("<I", count) + ends.tobytes() + head + b"".join(rows)
        file = {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}
        index = common | about | {"samples": count, "raw_data": file, "zip_data": None}
        (root / part).mkdir(parents=True, exist_ok=True)
        (root / part / "shard.00000.mds").write_bytes(shard)
        (root / part / "index.json").write_text(json.dumps({"version": 2, "shards": [index]}))


def records(
    root: Path, names: tuple[str, str] = ("image/encoded", "image/class/label"), first: int = 1
) -> None:
    """root/train-*-of-* and root/validation-*-of-*: TFRecords with labels that begin at `first`."""
    import tensorflow as tf

    root.mkdir(parents=True, exist_ok=True)
    for part, start, shards, count in (("train", 0, 3, 16), ("validation", 10_000, 2, 10)):
        for shard in range(shards):
            path = root / f"{part}-{shard:05}-of-{shards:05}"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for i in range(start + shard * count, start + (shard + 1) * count):
                    picture, _, kind = image(i)
                    jpeg = io.BytesIO()
                    picture.save(jpeg, "JPEG", quality=92)
                    bytes_list = tf.train.BytesList(value=[jpeg.getvalue()])
                    int64_list = tf.train.Int64List(value=[first + kind])
                    features = {
                        names[0]: tf.train.Feature(bytes_list=bytes_list),
                        names[1]: tf.train.Feature(int64_list=int64_list),
                    }
                    example = tf.train.Example(features=tf.train.Features(feature=features))
                    writer.write(example.SerializeToString())


def table(root: Path, count: int = 60) -> None:
    """root/photos/*.jpg and root/train.csv: image_id, label, age and gender of each."""
    (root / "photos").mkdir(parents=True, exist_ok=True)
    lines = ["image_id,label,age,gender"]
    for i in range(count):
        picture, _, kind = image(i)
        picture.save(root / "photos" / f"{i:04}.jpg", quality=92)
        lines.append(f"{i:04}.jpg,{kind},{20 + 7 * i % 61},{i % 2}")
    (root / "train.csv").write_text("\n".join(lines) + "\n")
