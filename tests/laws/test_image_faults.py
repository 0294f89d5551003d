"""An exception that one image raises, in any stage of a job and under any engine, costs that image
alone.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder
from helpers.small_jobs import FORMATS, InlineEngine

import fastfeed as ff
from fastfeed.decode.pillow_warnings import current_name
from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess import (
    Encoding,
    Input,
    Metadata,
    Packing,
    Recipe,
    Report,
    Scaling,
    Selection,
    run,
)
from fastfeed.preprocess.model.record import Entry, ProcessedImage
from fastfeed.preprocess.writers import writer_for

COUNT, CURSED = 8, "a/0002.jpg"
SURVEYED = Recipe(
    Scaling(16), Encoding("png"), packing=Packing(samples=3), choice=Selection(val=0.4)
)
EXIF = Recipe(
    Scaling(16), Encoding("png"), packing=Packing(samples=3), metadata=Metadata(exif=("time",))
)
STAGES = {  # a function of the stage, and a recipe that calls it
    "header": ("fastfeed.preprocess.pixels.transform:image_info", EXIF),
    "limits": ("fastfeed.preprocess.pixels.transform:limit_error", EXIF),
    "geometry": ("fastfeed.preprocess.pixels.transform:output_geometry", EXIF),
    "memory": ("fastfeed.preprocess.pixels.transform:cost", EXIF),
    "decode": ("fastfeed.preprocess.pixels.decode:Rasterizer.pixels", EXIF),
    "encode": ("fastfeed.preprocess.pixels.transform:encode", EXIF),
    "exif": ("fastfeed.preprocess.pixels.transform:exif_columns", EXIF),
    "metadata": ("fastfeed.preprocess.shard.build:make_entry", EXIF),
    "counts": ("fastfeed.preprocess.model.record:Counts.of", EXIF),
    "survey's sha256": ("fastfeed.preprocess.planning.survey:sha256_prefix", SURVEYED),
    "survey's header": ("fastfeed.preprocess.planning.survey:image_info", SURVEYED),
    "survey's memory": ("fastfeed.preprocess.planning.survey:cost", SURVEYED),
    "survey's dHash": ("fastfeed.preprocess.planning.survey:dhash", SURVEYED),
}


class Unforeseen(Exception):
    """No code of the package expects it."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(
        tmp_path_factory.mktemp("image_faults") / "photos",
        {"a": COUNT // 2, "b": COUNT // 2},
        (24, 40),
    )


@pytest.fixture(params=["inline", "threads"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "inline":
        yield InlineEngine()
        return
    monkeypatch.setattr("fastfeed.preprocess.workers.runner.can_supervise", lambda: False)
    monkeypatch.setattr("fastfeed.preprocess.workers.runner._warn_unsupervised", lambda: None)
    with ThreadPoolExecutor(2) as pool:
        yield pool


@contextmanager
def cursed(path: str, is_cursed: Callable[..., bool]) -> Iterator[None]:
    """The function `path`, which raises for the image that `is_cursed` recognizes from its
    arguments.
    """
    module, _, names = path.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = names.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = owner.__dict__[name]
    call = getattr(owner, name) if isinstance(original, classmethod) else original

    def raising(*arguments: Any, **more: Any) -> Any:
        if is_cursed(*arguments):
            raise Unforeseen("out of the blue")
        return call(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            owner, name, staticmethod(raising) if isinstance(original, classmethod) else raising
        )
        yield


def of_cursed(photos: Path) -> Callable[..., bool]:
    """Whether a stage's arguments, or the name that its thread works under, are those of the cursed
    image.
    """
    content = (photos / CURSED).read_bytes()
    digest = hashlib.sha256(content).hexdigest()

    def is_cursed(*arguments: Any) -> bool:
        name = current_name()
        names = [a for a in arguments if isinstance(a, str)] + ([name()] if name else [])
        facts = [a.facts["sha256"] for a in arguments if isinstance(a, ProcessedImage)]
        uris = [a.meta["uri"] for a in arguments if isinstance(a, Entry)]
        files = [a for a in arguments if isinstance(a, bytes)]
        return (
            content in files or digest in facts or any(n.endswith(CURSED) for n in (*names, *uris))
        )

    return is_cursed


def expect_one_bad(report: Report, text: str = "out of the blue") -> None:
    assert report.complete and report.tally.samples == COUNT - 1
    (bad,) = report.bad
    assert bad.uri.endswith(CURSED) and bad.reason == "internal" and text in bad.detail, str(bad)


@pytest.mark.parametrize("stage", STAGES)
def test_an_exception_in_this_stage(photos: Path, tmp_path: Path, engine: Any, stage: str) -> None:
    path, recipe = STAGES[stage]
    with cursed(path, of_cursed(photos)):
        report = run(str(photos), tmp_path / "shards", recipe, engine=engine)
    expect_one_bad(report)
    listed = [
        json.loads(line) for line in (tmp_path / "shards/__job/bad.jsonl").read_text().splitlines()
    ]
    assert [(row["reason"], row["uri"].endswith(CURSED)) for row in listed] == [("internal", True)]
    again = run(str(photos), tmp_path / "shards", recipe, engine=InlineEngine())
    assert again.complete and not again.shards_now


@pytest.mark.parametrize("format", FORMATS)
def test_an_exception_of_the_writer(photos: Path, tmp_path: Path, engine: Any, format: str) -> None:
    packing = Packing(format, samples=3)
    writer = writer_for(packing)
    scaling, image = (Scaling(16, "contain"), "raw") if format == "raw" else (Scaling(16), "png")
    recipe = Recipe(scaling, Encoding(image), packing=packing)
    with cursed(f"{writer.__module__}:{writer.__name__}.add", of_cursed(photos)):
        expect_one_bad(run(str(photos), tmp_path / "shards", recipe, engine=engine))
    with cursed(f"{writer.__module__}:as_json", lambda meta, *_: str(meta).count(CURSED) > 0):
        expect_one_bad(run(str(photos), tmp_path / "again", recipe, engine=engine))
    one, other = (sorted((tmp_path / name).glob("*.*")) for name in ("shards", "again"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other], (
        "nothing is half written"
    )


class Source(ff.ImageFolder):
    """A folder of which one image raises, in one of the methods."""

    where = ""

    def _raise_for(self, where: str, ids: Any) -> None:
        if self.where == where and any(
            ff.ImageFolder.uri(self, int(i)).endswith(CURSED) for i in ids
        ):
            raise Unforeseen("out of the blue")

    def uri(self, i: int) -> str:
        self._raise_for("sizes", [i])  # which need the path
        return super().uri(i)

    def read(self, ids: Any) -> list[Any]:
        self._raise_for("read", ids)
        return super().read(ids)

    def extra_columns(self, ids: Any) -> list[dict[str, Any]]:
        self._raise_for("columns", ids)
        return [{"n": int(i)} for i in ids]


@pytest.mark.parametrize("where", ["read", "columns"])
@pytest.mark.parametrize("recipe", [EXIF, SURVEYED], ids=["plain", "surveyed"])
def test_an_exception_of_the_source(
    photos: Path, tmp_path: Path, engine: Any, where: str, recipe: Recipe
) -> None:
    source = Source(photos)
    source.where = where
    report = run(
        Input(source, str(photos), columns=("n",)), tmp_path / "shards", recipe, engine=engine
    )
    expect_one_bad(report)


def of_words(samples: Any) -> list[dict[str, Any]]:
    if any(sample.uri == CURSED for sample in samples):
        raise Unforeseen("out of the blue")
    return [{"word": np.ones(2, np.float32)} for _ in samples]


def of_no_use(samples: Any) -> list[dict[str, Any]]:
    raise Unforeseen("out of the blue")


def of_other_shape(samples: Any) -> list[dict[str, Any]]:
    return [{"word": np.ones(2 + (sample.uri == CURSED), np.float32)} for sample in samples]


def with_function(name: str, batch: int) -> Recipe:
    metadata = Metadata(extras=f"{__name__}:{name}", extras_batch=batch)
    return Recipe(Scaling(16), Encoding("png"), packing=Packing(samples=8), metadata=metadata)


@pytest.mark.parametrize("batch", [1, 3, 16])
@pytest.mark.parametrize("name", ["of_words", "of_other_shape"])
def test_an_exception_of_the_users_function(
    photos: Path, tmp_path: Path, engine: Any, batch: int, name: str
) -> None:
    text = "out of the blue" if name == "of_words" else "has word float32 (3,)"
    expect_one_bad(
        run(str(photos), tmp_path / "shards", with_function(name, batch), engine=engine), text
    )


@pytest.mark.parametrize("batch", [1, 16])
def test_a_function_that_always_fails_ends_the_job(
    photos: Path, tmp_path: Path, batch: int
) -> None:
    with pytest.raises(
        ConfigError, match=r"of_no_use raised Unforeseen: out of the blue .*for a/0000\.jpg"
    ):
        run(
            str(photos),
            tmp_path / "shards",
            with_function("of_no_use", batch),
            engine=InlineEngine(),
        )


def test_a_full_disk_ends_the_job(photos: Path, tmp_path: Path) -> None:
    def full(*_: Any) -> int:
        raise TargetError("no space left on device", errno.ENOSPC)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastfeed.preprocess.targets.base.AtomicFile.write", full)
        with pytest.raises(TargetError, match="no space left"):
            run(str(photos), tmp_path / "shards", EXIF, engine=InlineEngine())
    assert run(str(photos), tmp_path / "shards", EXIF, engine=InlineEngine()).tally.samples == COUNT


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_a_machine_at_its_limits_ends_the_job(photos: Path, tmp_path: Path, number: int) -> None:
    def exhausted(*_: Any) -> int:
        raise OSError(number, "the machine's fault")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastfeed.preprocess.pixels.transform.image_info", exhausted)
        with pytest.raises(OSError, match="the machine's fault"):
            run(str(photos), tmp_path / "shards", EXIF, engine=InlineEngine())
