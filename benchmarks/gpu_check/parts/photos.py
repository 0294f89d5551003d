"""0.

Two sets of photographs in memory-backed storage: ImageNet-size, and stock photos of 12 megapixels.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.gpu_check.parts.setting import Setting

_ORIENTATION = 0x0112
_TURNS = (1, 1, 1, 1, 1, 6, 1, 8, 1, 3)  # EXIF orientation by number
_PROGRESSIVE = 7  # every so many


class Kind(NamedTuple):
    """How files of one set are made."""

    size: tuple[int, int]  # (width, height), pixels
    grain: int  # levels of noise, which decides the file's size
    quality: int
    count: int
    quick: int  # count in a quick run, at a third of the size where that is over a megapixel


KINDS = {
    "imagenet": Kind((500, 375), 64, 92, 1024, 64),  # some 110 kB
    "stock": Kind((4000, 3000), 24, 92, 32, 4),  # 3 to 6 MB
}


def run(setting: Setting) -> dict[str, Any]:
    """Fill `setting.sets`."""
    if setting.images is not None:
        files = [
            p for p in sorted(setting.images.rglob("*")) if p.suffix.lower() in (".jpg", ".jpeg")
        ]
        assert files, f"no .jpg files below {setting.images}"
        setting.sets["own"] = setting.images
        return {"own": _told(files)}
    figures = {}
    for name, usual in KINDS.items():
        kind = _smaller(usual) if setting.quick else usual
        folder = setting.folder / name
        folder.mkdir()
        count = kind.count
        with ThreadPoolExecutor(setting.cores) as pool:
            bases = list(pool.map(_base, range(min(count, 8 if setting.quick else 48))))

            def write(
                i: int, kind: Kind = kind, folder: Path = folder, bases: list[np.ndarray] = bases
            ) -> Path:
                path = folder / f"{i:05}.jpg"
                path.write_bytes(made(bases[i % len(bases)], kind, i))
                return path

            files = list(pool.map(write, range(count)))
        setting.sets[name] = folder
        figures[name] = _told(files)
        setting.say(f"{name}: {figures[name]}")
    return figures


def _smaller(kind: Kind) -> Kind:
    width, height = kind.size if kind.size[0] < 1000 else (kind.size[0] // 3, kind.size[1] // 3)
    return kind._replace(size=(width, height), count=kind.quick)


def made(base: np.ndarray, kind: Kind, number: int) -> bytes:
    """A file: a part of the picture, scaled, with grain; some turned, some progressive."""
    rng = np.random.default_rng(number)
    size = kind.size if number % 3 else kind.size[::-1]
    height, width = base.shape[:2]
    scale = rng.uniform(0.7, 1.0) * min(width / size[0], height / size[1])
    part_w, part_h = int(size[0] * scale), int(size[1] * scale)
    x, y = rng.integers(width - part_w + 1), rng.integers(height - part_h + 1)
    how = Image.Resampling.BOX if scale > 1 else Image.Resampling.BICUBIC
    picture = np.asarray(
        Image.fromarray(base).resize(size, how, box=(x, y, x + part_w, y + part_h))
    )
    noise = (
        rng.integers(0, kind.grain + 1, (256, size[0], 3), np.uint8).astype(np.int16)
        - kind.grain // 2
    )
    noise = np.tile(noise, (-(-size[1] // 256), 1, 1))[: size[1]]
    image = Image.fromarray(np.clip(picture + noise, 0, 255).astype(np.uint8))
    exif, file = Image.Exif(), io.BytesIO()
    exif[_ORIENTATION] = _TURNS[number % len(_TURNS)]
    image.save(
        file, "JPEG", quality=kind.quality, progressive=number % _PROGRESSIVE == 3, exif=exif
    )
    return file.getvalue()


def _base(index: int) -> np.ndarray:
    from fastfeed.demo.photos import LANDMARKS, photograph

    names = list(LANDMARKS)
    blob = photograph("train", names[index % len(names)], index // len(names))
    return np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))


def _told(files: list[Path]) -> dict[str, Any]:
    sizes = [path.stat().st_size for path in files]
    with Image.open(files[0]) as first:
        shape = first.size
    return {
        "files": len(files),
        "mean_kb": round(float(np.mean(sizes)) / 1e3, 1),
        "first": list(shape),
    }
