"""`fastfeed index SOURCE`: lists a folder or indexes shards once, so that no run has to."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal
from rich.text import Text

from fastfeed.cli.open_source import StorageOption, storage_options
from fastfeed.cli.screen.help import argument, option
from fastfeed.cli.screen.streams import Console, show_facts
from fastfeed.printable import plural

if TYPE_CHECKING:
    from fastfeed.storage.storage import Storage

_NOTES = 5  # shown

Facts = list[tuple[str, str]]


def index(
    source: Annotated[str, argument("SOURCE", "Folder of images, or shards, local or s3://...")],
    out: Annotated[
        Path | None,
        option(
            "FILE",
            "File to write: a folder's listing (.parquet, .csv, .jsonl) or the index of shards.",
            "--out",
            "-o",
        ),
    ] = None,
    label: Annotated[
        str | None,
        option("NAME", "Where shards hold the label: cls, json:field, image/class/label, or none."),
    ] = None,
    workers: Annotated[
        int, option("N", "Remote folders to list at a time.", "--workers", "-w", min=1, max=64)
    ] = 16,
    storage_option: StorageOption = None,
) -> None:
    """List a folder or index shards, once for all runs.

    If interrupted, run it again to resume.

    Examples:
        fastfeed index s3://bucket/train -o listing.parquet            # a folder
        fastfeed index 'shards/train-{000..099}.tar'                   # shards
        fastfeed index s3://bucket/train --storage-option anon=true    # public
    """
    from fastfeed.errors import ConfigError
    from fastfeed.sources.detect import detect_kind
    from fastfeed.storage.storage import Storage

    kind = detect_kind(source)
    opened = Storage(storage_options(storage_option or []))
    console = Console()
    started = time.monotonic()
    if kind == "table":
        raise ConfigError(
            f"{source} is a table, which needs no index: Table({source!r}, image=...) reads it"
        )
    if kind == "hugging_face":
        raise ConfigError(
            f"{source} is a data set of Hugging Face, which needs no index: HuggingFace({source!r})"
            " reads it"
        )
    if kind == "folder":
        if label is not None:
            raise ConfigError("--label is for shards: an image's class is its folder")
        facts, use = _folder(source, out, workers, opened)
    else:
        facts, use = _shards(source, kind, out, label, opened)
    seconds = time.monotonic() - started
    facts.append(("took", f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"))
    show_facts(console, source, facts)
    console.print(Text.assemble("\n", use), soft_wrap=True)


def _folder(source: str, out: Path | None, workers: int, storage: Storage) -> tuple[Facts, str]:
    from fastfeed.sources.listing.journal import folders_listed
    from fastfeed.sources.listing.listing import list_images
    from fastfeed.storage.reads import is_local

    path = source.removeprefix("file://")
    name = os.path.basename(os.path.abspath(path) if is_local(path) else path.rstrip("/"))
    to = str(out) if out is not None else f"{name or 'images'}.parquet"
    try:
        listed = list_images(path, to, storage=storage, at_once=workers, who="index")
    except KeyboardInterrupt:
        done, folders = folders_listed(f"{to}.partial")
        some = f"{done:,} of {folders:,} folders"
        raise _interrupted(f"{some} are listed and saved in {to}.partial") from None
    classed = sum(listed.classes.values())
    facts = [
        ("images", f"{listed.images:,}"),
        ("classes", _spread(list(listed.classes.values()), "image")),
    ]
    if unclassed := listed.images - classed:
        facts.append(("no class", f"{plural(unclassed, 'image')}, directly in it"))
    facts.append(
        ("size", f"{decimal(listed.size)}, {decimal(listed.size // listed.images)} per image")
    )
    if empty := listed.folders - len(listed.classes):
        facts.append(("empty", f"{plural(empty, 'folder')} without images"))
    if listed.skipped:
        skipped = [f"{n:,} {what}" for what, n in listed.skipped.most_common(8)]
        facts.append(("left out", ", ".join(skipped)))
    if listed.resumed:
        folders = plural(listed.folders, "folder")
        facts.append(("resumed", f"{listed.resumed:,} of {folders} from an earlier run"))
    facts.append(("listing", f"{to}, {decimal(os.path.getsize(to))}"))
    how = "" if classed else ", labeled=False"
    return facts, f"Use it:  ff.ImageFolder({source!r}, listing={to!r}{how})"


def _shards(
    source: str, kind: str, out: Path | None, label: str | None, storage: Storage
) -> tuple[Facts, str]:
    import numpy as np

    how: dict[str, Any] = {} if label is None else {"label": None if label == "none" else label}
    how |= {} if out is None else {"index": str(out)}
    from fastfeed import sources

    try:
        shards = sources.TarShards if kind == "tar" else sources.TFRecords
        opened = shards(source, storage=storage, **how)
    except KeyboardInterrupt:
        raise _interrupted("the index of the shards read so far is saved") from None
    ids = np.arange(len(opened))
    labels = opened.label(ids)
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    facts = [
        ("samples", f"{len(opened):,}"),
        ("classes", _spread(counts.tolist(), "sample")),
    ]
    if missing := int((labels < 0).sum()):
        facts.append(("no label", plural(missing, "sample")))
    size = int(opened.sizes(ids).sum())
    facts.append(("shards", _spread(np.diff(opened.bounds).tolist(), "sample")))
    facts.append(("size", f"{decimal(size)}, {decimal(size // len(opened))} a sample"))
    notes = opened.notes
    if notes:
        more = [f"and {len(notes) - _NOTES:,} more, see .notes"] if len(notes) > _NOTES else []
        facts.append(("notes", "\n".join([*notes[:_NOTES], *more])))
    path = opened.index_file
    saved = "not saved: no folder for it can be written"
    if path:
        saved = f"{path}, {decimal(os.path.getsize(path))}"
    facts.append(("index", saved))
    shown = ", ".join([repr(source), *(f"{name}={value!r}" for name, value in how.items())])
    return facts, f"Use it:  ff.{type(opened).__name__}({shown})"


def _spread(counts: Sequence[int], what: str) -> str:
    """`10, of 732 to 1,300 images`."""
    if not counts:
        return "none"
    few = min(counts)
    many = max(counts)
    return f"{len(counts):,}, of {f'{few:,} to ' if few < many else ''}{plural(many, what)}"


def _interrupted(what: str) -> typer.Exit:
    Console(stderr=True).plain(f"interrupted: {what}; run the same command again to resume")
    return typer.Exit(130)
