"""`fastfeed show DIR`: draw samples as the trainer will see them, or the effect of ops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from fastfeed.cli.open_source import (
    AllowHost,
    AllowPath,
    AllowScheme,
    Epoch,
    Seed,
    Split,
    StorageOption,
    allowed,
)
from fastfeed.cli.screen.help import MORE, argument, flag, option
from fastfeed.cli.screen.streams import Console, show_written

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from fastfeed.cli.open_source import Allow
    from fastfeed.cli.show.ops import OpSection
    from fastfeed.runtime.batch import Batch
    from fastfeed.sources import ImageFolder
    from fastfeed.sources.base import Source
    from fastfeed.sources.label_values import LabelKind

_SUFFIXES = (".png", ".jpg", ".webp")
# as many as Mosaic shows; pixels of their short side
_PHOTOS = 4
_SHORT = 640
_TRIED = 64  # images, some of which may be bad
_LONGEST = 4  # times its short side: the middle is shown of what is longer


def show(
    source: Annotated[
        str, argument("SOURCE", "Folder of class folders, shards or a table, local or s3://...")
    ],
    out: Annotated[
        Path | None,
        option("FILE", "Picture to write. Default: contact-sheet.png or ops.png.", "--out", "-o"),
    ] = None,
    ops: Annotated[
        str,
        option(
            "OPS",
            "Draw an image after each op: a recipe (imagenet_train), a family (color), all,"
            " a list: 'Hue(0.1), RandAugment()', or a JSON file of ops.",
        ),
    ] = "",
    count: Annotated[int, option("N", "Samples to draw.", "--count", "-n", min=1, max=1000)] = 24,
    size: Annotated[
        int, option("N", "Side of a sample in pixels.", panel=MORE, min=16, max=1024)
    ] = 160,
    evaluate: Annotated[
        bool, flag("Only resize and center crop, as in validation.", "--eval")
    ] = False,
    scale: Annotated[
        float,
        option("X", "Smallest fraction of an image's area that a random crop covers.", panel=MORE),
    ] = 0.08,
    seed: Seed = 0,
    epoch: Epoch = 0,
    label: Annotated[
        str | None, option("NAME", "Label: a member, field or column of shards or a table.")
    ] = None,
    label_kind: Annotated[
        str | None,
        option(
            "name|index|value|multi|text",
            "Integer labels are the name of a class (default in tables) or its index; or labels are"
            " numbers, several classes, texts.",
            panel=MORE,
        ),
    ] = None,
    image: Annotated[
        str | None, option("NAME", "Column or feature that holds the image.", panel=MORE)
    ] = None,
    allow_functions: Annotated[
        bool,
        flag("Import the functions that a JSON file of --ops names.", panel=MORE),
    ] = False,
    split: Split = None,
    storage_option: StorageOption = None,
    allow_path: AllowPath = None,
    allow_host: AllowHost = None,
    allow_scheme: AllowScheme = None,
) -> None:
    """Draw what a trainer will see, or what each op does.

    Examples:
        fastfeed show photos/train                           # contact-sheet.png
        fastfeed show photos/val --eval -n 48                # as in validation
        fastfeed show photos/train --ops color               # after each color op
        fastfeed show 'train-{000..099}.tar' --label cls     # shards
    """
    from fastfeed.cli.show.ops import sections
    from fastfeed.distributed.world import World
    from fastfeed.errors import ConfigError
    from fastfeed.feed.feed import Feed
    from fastfeed.ops import RandomFlip, RandomResizedCrop
    from fastfeed.ops.evaluation import evaluation

    console = Console()
    allow = allowed(allow_path, allow_host, allow_scheme)
    kind = cast("LabelKind | None", label_kind)
    opened = _opened(str(source), label, image, storage_option or [], allow, kind, split)
    console.print(str(opened), soft_wrap=True, highlight=False, markup=False)
    out = out or Path("ops.png" if ops else "contact-sheet.png")
    if out.suffix.lower() not in _SUFFIXES or not out.resolve().parent.is_dir():
        raise ConfigError(
            f"--out must be a {', '.join(_SUFFIXES)} in an existing folder, got {out}"
        )
    if ops:
        _grid(opened, sections(ops, allow_functions), size, out, console)
        return
    chosen = [RandomResizedCrop(size, scale=(scale, 1.0)), RandomFlip()]
    chosen = evaluation(chosen) if evaluate else chosen
    with Feed(opened, chosen, batch=min(count, len(opened)), seed=seed, world=World()) as feed:
        batch = next(feed.batches(epoch))
        bad = feed.stats().bad
    contact_sheet(batch, opened.classes).save(out)
    show_written(console, f"{len(batch)} samples of epoch {epoch}, seed {seed}", out)
    for failure in bad:
        text = f"  left out, bad: {failure}"
        console.print(text, style="yellow", soft_wrap=True, highlight=False, markup=False)


def _opened(
    source: str,
    label: str | None,
    image: str | None,
    options: list[str],
    allow: Allow,
    kind: LabelKind | None,
    split: str | None,
) -> Source:
    from fastfeed.cli.open_source import open_source
    from fastfeed.sources.detect import detect_kind
    from fastfeed.storage.reads import is_local

    is_folder = detect_kind(source) == "folder" and split is None
    if is_folder and is_local(source):
        return folder(Path(source))
    return open_source(
        source,
        label,
        options,
        image,
        labeled=not is_folder,
        allow=allow,
        label_kind=kind,
        split=split,
    )


def _grid(
    source: Source, requested: list[OpSection], side: int, out: Path, console: Console
) -> None:
    """Draw the ops of --ops. Ops without random numbers share a row."""
    from dataclasses import replace

    from fastfeed.cli.show.grid import OpRow, draw
    from fastfeed.cli.show.ops import arguments
    from fastfeed.cli.show.strengths import STRENGTHS, Picture, pictures, sample_box, scaled
    from fastfeed.feed.explain import short

    photos = _sample_images(source)
    images = [image for _, image in photos]
    first = scaled(images[0], side)
    drawn = []
    for section in requested:
        rows: list[OpRow] = []
        for op in section.ops:
            drawings = pictures([op], images, side)
            if len(drawings) > 1:
                rows.append(OpRow(type(op).__name__, arguments(op), drawings))
                continue
            if not rows or rows[-1].name or len(rows[-1].pictures) == len(STRENGTHS):
                rows.append(OpRow("", "deterministic", []))
            rows[-1].pictures.append(replace(drawings[0], words=short(op)))
        if section.combined:
            drawings = pictures(section.combined, images, side)
            rows.append(OpRow("whole list", "applied in order", drawings))
        drawn.append((section.heading, rows))
        for op in section.skipped:
            text = f"  skipped, no visible effect: {short(op)}"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
    below = "Columns: random draws at 10, 30, 50, 70 and 90 %. The box shows where ops move pixels."
    original = Picture(first, box=sample_box(first))
    sheet = draw(Path(photos[0][0]).name, below, original, drawn, [f"draw {u}" for u in STRENGTHS])
    sheet.save(out, **({} if out.suffix.lower() == ".png" else {"quality": 82}))
    count = sum(len(rows) for _, rows in drawn)
    show_written(console, f"{count} rows", out)


def _sample_images(source: Source) -> list[tuple[str, np.ndarray]]:
    """A few readable images with their names, spread over the folder."""
    from fastfeed.errors import SourceError

    step = max(1, len(source) // _PHOTOS)
    places = [first + step * k for first in range(step) for k in range(_PHOTOS)]
    ids = [id for id in places if id < len(source)]
    photos: list[tuple[str, np.ndarray]] = []
    for id in ids[:_TRIED]:
        image = _sample_image(source, id)
        if image is not None:
            photos.append((source.uri(id), image))
        if len(photos) == _PHOTOS:
            return photos
    if not photos:
        tried = min(len(ids), _TRIED)
        raise SourceError(f"none of the first {tried} images of {source!r} can be read")
    return photos


def _sample_image(source: Source, id: int) -> np.ndarray | None:
    """The image in RGB, no larger than needed; the middle of a long one.

    None if it cannot be decoded.
    """
    import threading
    from contextlib import closing

    import numpy as np

    from fastfeed.decode.executor import Executor
    from fastfeed.faults import Failure
    from fastfeed.feed.transform.transform import Transform
    from fastfeed.ops import Decode, Resize

    (blob,) = source.read([id])
    if isinstance(blob, np.ndarray):
        return np.repeat(blob, 3, axis=2) if blob.shape[2] == 1 else blob
    if isinstance(blob, Failure):
        return None
    with closing(Executor(Decode(), 1)) as executor:
        samples = executor.borrow([blob], threading.Event())
    if samples.bad:
        return None
    size = samples.sizes[0] * min(1.0, _SHORT / samples.sizes[0].min())
    height, width = np.maximum(np.rint(size), 1).astype(int).tolist()
    with Transform([Resize((height, width))]) as transform:
        batch = transform([bytes(blob)])
    if batch.bad:
        return None
    limit = _LONGEST * min(height, width)
    top = max(0, height - limit) // 2
    left = max(0, width - limit) // 2
    return np.ascontiguousarray(batch.images[0, top : top + limit, left : left + limit])


def folder(directory: Path) -> ImageFolder:
    """The images of a folder, labeled if it has class folders.

    Of a folder with train/ and val/, those of train/.
    """
    from fastfeed.sources import ImageFolder

    if (directory / "train").is_dir() and (directory / "val").is_dir():
        directory = directory / "train"
    has_folders = directory.is_dir() and any(
        p.is_dir() for p in directory.iterdir() if not p.name.startswith(".")
    )
    return ImageFolder(directory, labeled=has_folders, min_per_class=1)


def contact_sheet(batch: Batch, classes: tuple[str, ...]) -> Image.Image:
    """Images of a uint8 HWC batch in a grid of about 4:3, with class names and sample ids."""
    from fastfeed.contact_sheet import draw_sheet
    from fastfeed.feed.preview import batch_cells

    cells = list(batch_cells(batch, classes, ["HWC"], {}, len(batch)))
    return draw_sheet(cells, batch.images.shape[1])
