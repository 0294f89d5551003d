"""`Transform.torch`: the batch of a call as tensors, which workers make in shared memory."""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, needs
from helpers.photos import broken, jpeg, picture
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed

pytestmark = needs("torch")
torch: Any = LazyModule("torch")
FILES = [jpeg(i, (40, 48 + 8 * i)) for i in range(5)]
ITEMS = [*FILES, picture(6), broken("truncated")]
RANDOM = [ff.RandomResizedCrop(24), ff.RandomFlip(), ff.Normalize.imagenet(), ff.ToLayout("CHW")]
DOUBLE = ff.Map(lambda score: score * 2, "score", out="double")
STRATEGIES = ["file_descriptor", pytest.param("file_system", marks=pytest.mark.slow)]
SHARED_MEMORY = Path("/dev/shm")


def mask(k: int) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(np.full((40, 48 + 8 * k), k, np.uint8)).save(file, "PNG")
        return file.getvalue()


FIELDS = {
    "label": [2, 0, 1, 1, 0],
    "boxes": [np.array([[0, 0, 20 + k, 10]]) for k in range(5)],
    "box_labels": [[k] for k in range(5)],
    "masks": [*map(mask, range(4)), b"no mask"],  # makes item 4 bad
    "score": np.arange(10, dtype=np.float32).reshape(5, 2),
    "caption": list("abcde"),
}


def inverted(image: np.ndarray, _: np.ndarray) -> np.ndarray:
    return 255 - image


def as_arrays(batch: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(batch[name]) for name in batch.keys()}  # noqa: SIM118


def assert_same(got: Any, wanted: Any) -> None:
    got, wanted = as_arrays(got), as_arrays(wanted)
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype, name
        np.testing.assert_array_equal(got[name], array, name)


@pytest.mark.parametrize("in_worker", [False, True])
def test_all_fields_are_those_of_a_call(in_worker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: in_worker or None)
    ids = [5, 3, 9, 0, 4]
    with ff.Transform([*RANDOM, DOUBLE], seed=3, threads=2) as transform:
        wanted = transform(FILES, fields=FIELDS, ids=ids, epoch=2)
        batch = transform.torch(FILES, fields=FIELDS, ids=ids, epoch=2)
    assert list(wanted.bad) == [4] and batch.bad == wanted.bad
    assert_same(batch, wanted)
    tensors = {name for name in batch.keys() if torch.is_tensor(batch[name])}  # noqa: SIM118
    assert tensors == set(batch.keys()) - {"caption"}
    assert batch.images.is_shared() == in_worker


@pytest.mark.parametrize(
    "ops",
    [
        RANDOM,
        [ff.MultiCrop((ff.View(24, 2), ff.View(16, 3)))],
        [ff.RandomResizedCrop(24), ff.Function(inverted, draws=0)],
    ],
    ids=["native", "views", "function"],
)
def test_a_worker_makes_images_in_shared_memory(
    ops: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files, arrays and bad items, and none at all."""
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: True)
    ids = list(range(len(ITEMS)))
    with ff.Transform(ops, threads=1) as transform:
        batch = transform.torch(ITEMS, ids=ids)
        assert list(batch.bad) == [6] and batch.weights.tolist() == [1] * 6 + [0]
        assert_same(batch, transform(ITEMS, ids=ids))
        assert all(images.is_shared() for images in batch.views or (batch.images,))
        held = batch.images.clone()
        transform.torch(ITEMS[::-1], ids=ids)  # in other memory
        assert torch.equal(batch.images, held)
        empty = transform.torch([], ids=[])
        assert empty.images.shape == (0, *batch.images.shape[1:])


def test_bfloat16_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: True)
    with ff.Transform([ff.Resize((24, 20)), ff.ToFloat("bfloat16")], threads=1) as transform:
        images = transform.torch(FILES).images
        assert images.dtype == torch.bfloat16 and images.is_shared()
        np.testing.assert_array_equal(images.float().numpy(), transform(FILES).images)


def collate(rows: list[int], transform: ff.Transform) -> dict[str, Any]:
    """A batch, whether its images are shared, and descriptors that the worker has open."""
    batch = transform.torch([ITEMS[row] for row in rows], ids=rows)
    state = {"bad": batch.bad, "shared": batch.images.is_shared()}
    return dict(batch) | state | {"open": len(os.listdir("/proc/self/fd"))}


def loaded(rows: Iterable[int], transform: ff.Transform) -> Any:
    return torch.utils.data.DataLoader(
        list(rows),
        batch_size=len(ITEMS),
        num_workers=1,
        multiprocessing_context="fork",
        collate_fn=functools.partial(collate, transform=transform),
    )


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="counts files of Linux")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_worker_hands_over_200_batches_without_a_leak(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.multiprocessing, "_sharing_strategy", strategy)
    count = len(ITEMS)
    with ff.Transform(RANDOM, threads=1) as transform:
        wanted = transform(ITEMS, ids=range(count))
        before = set(os.listdir("/proc/self/fd"))
        states = []
        for batch in loaded([*range(count)] * 200, transform):
            states.append((batch.pop("shared"), batch.pop("open"), len(torch_files())))
            bad = batch.pop("bad")
    assert bad == wanted.bad and len(states) == 200
    assert_same(batch, wanted)
    del batch
    shared, descriptors, files = zip(*states, strict=True)
    assert all(shared)
    # a few batches are on their way at once, of four tensors each
    assert max(descriptors) - min(descriptors) < 20 and max(files) - min(files) < 20
    assert len(set(os.listdir("/proc/self/fd")) - before) < 10
    assert not torch_files()


def torch_files() -> list[str]:
    """Files in shared memory of children of this process, also of those that have ended."""
    return [
        name
        for name in os.listdir(SHARED_MEMORY)
        if (made := re.match(r"torch_(\d+)_", name)) and is_child(int(made[1]))
    ]


def is_child(pid: int) -> bool:
    """True for a child of this process, or a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return int(status.rpartition(")")[2].split()[1]) == os.getpid()


def test_no_room_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>")

    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: True)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", full)
    with ff.Transform([ff.Resize((8, 8))], threads=1) as transform:
        with pytest.raises(MemoryError, match=r"no shared memory .* enlarge /dev/shm \(docker"):
            transform.torch(FILES)


def test_wrong_calls() -> None:
    with ff.Transform([ff.Resize((8, 8))], threads=1) as transform:
        with pytest.raises(ConfigError, match="pass one value per item"):
            transform.torch(FILES, fields={"label": [1]})
        with pytest.raises(ConfigError, match="PyTorch has no tensors of >f4"):
            transform.torch(FILES[:1], fields={"x": np.zeros(1, ">f4")})
    with pytest.raises(FeedClosed):
        transform.torch(FILES)
