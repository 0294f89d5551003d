"""The nvjpeg backend's pixels are the cpu backend's: its CUDA kernel compiled for the processor,
nvJPEG by libjpeg.
"""

import io

import numpy as np
import pytest
from helpers.cuda_on_cpu import needs_compiler
from helpers.jpegs import NO_KERNEL, native, relaid
from helpers.late_nvjpeg import install
from helpers.needs import needs
from helpers.side_by_side import encoded, picture
from PIL import Image

import fastfeed as ff
from fastfeed.backends.options import GpuDecode

pytestmark = [needs_compiler, pytest.mark.skipif(native is None, reason=NO_KERNEL)]
ON_GPU = GpuDecode(engine="nvjpeg")
ORIENTATION = 0x0112


def turned(pixels: np.ndarray, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(pixels, "JPEG", quality=90, exif=exif.tobytes())


def gray(pixels: np.ndarray) -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).convert("L").save(made, "JPEG", quality=90)
    return made.getvalue()


FILES = {
    "4:4:4": encoded(picture(97, 131, 0), "JPEG", quality=92, subsampling=0),
    "4:2:2": encoded(picture(97, 131, 1), "JPEG", quality=92, subsampling=1),
    "4:2:0": encoded(picture(97, 131, 2), "JPEG", quality=92, subsampling=2),
    "4:4:0": relaid(97, 131, 0x12, 7),
    "4:1:1": relaid(97, 131, 0x41, 8),  # left to the CPU
    "gray": gray(picture(75, 101, 3)),
    **{f"turned {k}": turned(picture(70 + k, 90, k), k) for k in range(1, 9)},
    "two columns": encoded(picture(40, 2, 4), "JPEG", quality=95, subsampling=2),
    "four columns": encoded(picture(40, 4, 4), "JPEG", quality=95, subsampling=2),
    "one row": encoded(picture(1, 60, 5), "JPEG", quality=95, subsampling=2),
    "one pixel": encoded(picture(1, 1, 6), "JPEG", quality=95, subsampling=2),
    "stored as RGB": encoded(
        picture(60, 70, 9), "JPEG", quality=90, keep_rgb=True
    ),  # left to the CPU
    "restarts": encoded(picture(80, 120, 8), "JPEG", quality=90, restart_marker_rows=1),
}
OPS = {
    "enlarged": [ff.Resize((150, 160))],
    **{
        f"shrunk, {how}": [ff.Resize((50, 61), filter=how)]
        for how in ("bilinear", "bicubic", "lanczos", "box", "nearest")
    },
    "squeezed": [ff.Resize((20, 200), filter="lanczos")],
    "cropped": [ff.RandomResizedCrop(64, scale=(0.3, 1)), ff.RandomFlip()],
    "both flips": [ff.Resize((64, 48)), ff.RandomFlip(p=1.0, direction="both")],
    "numbers": [ff.Resize((64, 64)), ff.Normalize.imagenet(), ff.ToLayout("CHW")],
    "halves": [ff.Resize((64, 64)), ff.ToFloat("float16")],
    "channels first": [ff.Resize((64, 64)), ff.ToLayout("CHW")],
    "letterbox": [
        ff.Resize((66, 50), fit="pad", fill=(10, 200, 30)),
        ff.RandomFlip(direction="both"),
    ],
    "padded crop": [ff.RandomCrop((64, 80), padding=20, fill=(255, 0, 9)), ff.RandomFlip()],
    "padded, scaled": [
        ff.Pad((9, 30), "reflect"),
        ff.Resize((64, 48)),
        ff.RandomFlip(direction="both"),
    ],
    "all but beyond": [ff.Resize((40, 56)), ff.Pad(90, "edge"), ff.CenterCrop((60, 70))],
    "mirrored from beyond": [
        ff.RandomCrop((20, 20), padding=(30, 30, 40, 40), mode="reflect"),
        ff.RandomFlip(),
    ],
    "nothing of it": [
        ff.Resize((20, 20)),
        ff.Pad((30, 0, 0, 0), fill=(1, 2, 3)),
        ff.Crop(0, 0, 10),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    (root / "class").mkdir()
    for k, blob in enumerate(FILES.values()):
        (root / "class" / f"{k:02}.jpg").write_bytes(blob)
    return root


def batches(folder, ops, **options):
    """All samples in the order of FILES, as numbers."""
    source = ff.ImageFolder(folder, progress=False)
    with ff.Feed(
        source, ops, batch=len(FILES), shuffle=False, threads=2, seed=5, **options
    ) as feed:
        images = next(iter(feed)).images
        return images.get() if hasattr(images, "get") else images.copy()


@pytest.mark.parametrize("name", OPS)
def test_pixels_are_those_of_the_cpu(folder, monkeypatch, name):
    fake, _ = install(monkeypatch)
    got = batches(folder, OPS[name], decode=ON_GPU)
    assert fake["decoded"] >= len(FILES) - 2
    want = batches(folder, OPS[name])
    assert got.dtype == want.dtype and got.shape == want.shape
    level = {"numbers": 1 / 255 / 0.224, "halves": 1.2 / 255}.get(name, 1)
    apart = (
        np.abs(got.astype(np.float64) - want.astype(np.float64)).reshape(len(FILES), -1).max(axis=1)
    )
    differ = {file for file, far in zip(FILES, apart, strict=True) if far > level * 1.001}
    # of two pixels equally near, the CPU takes one before it turns the image
    assert differ <= ({f"turned {k}" for k in range(2, 9)} if name == "shrunk, nearest" else set())


@pytest.mark.parametrize(
    "how", [GpuDecode("nvjpeg", cpu_share=0.5), GpuDecode("nvjpeg", cpu_share=1.0), "hybrid"]
)
def test_the_cpu_takes_a_share(folder, monkeypatch, tmp_path, how):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path))
    fake, _ = install(monkeypatch)
    got = batches(folder, OPS["numbers"], decode=how, backend="nvjpeg")
    assert (fake["decoded"] == 0) == (how == GpuDecode("nvjpeg", cpu_share=1.0))
    assert np.abs(got - batches(folder, OPS["numbers"])).max() <= 1.001 / 255 / 0.224


CHAINS = {
    "all of one kind": [ff.Invert(), ff.Solarize((0, 256))],
    "policy": [ff.TrivialAugmentWide()],
    "cropped later": [ff.Posterize((1, 8)), ff.RandomCrop((60, 50)), ff.RandomFlip()],
    "numbers": [ff.Saturation(0.8), ff.Normalize.imagenet(), ff.ToLayout("CHW")],
    "noise": [ff.GaussianNoise(), ff.RandomErasing(p=1.0)],
}


@needs("nvidia")
@pytest.mark.parametrize("name", CHAINS)
def test_ops_of_dali_follow(folder, monkeypatch, name):
    """On its CPU operators here: after a level of difference, one pixel in a hundred may be on the
    other side.
    """
    fake, _ = install(monkeypatch)
    ops = [ff.Resize((72, 64)), *CHAINS[name]]
    got, want = batches(folder, ops, decode=ON_GPU), batches(folder, ops)
    assert fake["decoded"] and got.shape == want.shape
    apart = np.abs(got.astype(np.float64) - want) * (255 * 0.224 if name == "numbers" else 1)
    assert np.quantile(apart, 0.98) <= 2.001 and apart.mean() < 0.5


@pytest.mark.parametrize("op", [ff.MixUp(1.0), ff.CutMix(), ff.Mosaic()])
def test_mixing(folder, monkeypatch, op):
    install(monkeypatch)
    ops = [ff.RandomResizedCrop(40, scale=(0.5, 1)), ff.ToFloat(), ff.OneHot(3), op]
    assert np.abs(batches(folder, ops, decode=ON_GPU) - batches(folder, ops)).max() <= 1.5 / 255


@pytest.mark.parametrize(
    "view", [ff.FiveCrop(24), ff.MultiCrop([ff.View(60, 2), ff.View(48, 3, ops=[ff.Invert()])])]
)
def test_several_views(folder, monkeypatch, view):
    fake, _ = install(monkeypatch)
    source, ops = ff.ImageFolder(folder, progress=False), [ff.Resize((60, 70)), view]
    if isinstance(view, ff.MultiCrop):
        ops = ops[1:]
    found = []
    for how in ({"decode": ON_GPU}, {}):
        with ff.Feed(
            source, ops, batch=len(FILES), shuffle=False, threads=2, seed=5, **how
        ) as feed:
            images = next(iter(feed)).views
            found.append([one.get() if hasattr(one, "get") else one.copy() for one in images])
    assert fake["decoded"] and [one.shape for one in found[0]] == [one.shape for one in found[1]]
    assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(*found, strict=True))
