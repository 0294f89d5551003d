"""Options of `fastfeed preprocess`, by name: type, default, and the option itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastfeed.cli.screen.help import argument, flag, option

__all__ = ["JOB", "RECIPE", "RUN", "WITH", "Destination", "Places", "Source", "with_options"]

Options = Mapping[str, tuple[Any, Any, Any]]
_Text = str | None
_Texts = list[str] | None

Source = Annotated[str, argument("SRC", "Folder, shards ('*.tar'), table or URL; only read.")]
Destination = Annotated[str, argument("DST", "Folder or URL; empty, or a job to resume.")]
Places = Annotated[
    list[str], argument("SRC DST", "SRC as before, wherever it is now; DST of the job.")
]

# titles in --help-all; options without one are shown by --help
_SCALE, _FILES, _SHARDS = "Scaling", "Encoding", "Shards"
_CHOICE, _SOURCE, _WORK = "Which images", "Source", "Execution"

WITH: Options = {
    "with_": (
        str,
        "",
        option(
            "FUNCTION",
            "module:function that adds arrays, texts or numbers, such as embeddings.",
            "--with",
            panel=_SHARDS,
        ),
    )
}
RECIPE: Options = {
    "size": (str, "512", option("N|HxW", "Pixels: one side, or height x width.")),
    "mode": (
        str,
        "short",
        option(
            "MODE",
            "short or long: that side becomes N; cover: crop; contain: pad; exact: stretch;"
            " none; buckets.",
        ),
    ),
    "filter": (
        str,
        "lanczos",
        option("NAME", "lanczos, bicubic or area; always antialiased.", panel=_SCALE),
    ),
    "enlarge": (bool, False, flag("Enlarge small images, too.", "--enlarge", panel=_SCALE)),
    "full_decode": (
        bool,
        False,
        flag("Decode JPEGs at full size: exact colors, slower.", "--full-decode", panel=_SCALE),
    ),
    "buckets": (
        str,
        "",
        option("SIZES", "Crop to the nearest shape, as in 512x768,768x512.", panel=_SCALE),
    ),
    "matte": (str, "#ffffff", option("COLOR", "Color behind transparent pixels.", panel=_SCALE)),
    "fill": (str, "#000000", option("COLOR", "Color of the borders in contain.", panel=_SCALE)),
    "image_format": (
        str,
        "jpeg",
        option("FORMAT", "jpeg, webp, png, or raw pixels.", panel=_FILES),
    ),
    "quality": (int, 90, option("N", "JPEG or WebP quality, 1 to 100.", panel=_FILES)),
    "subsampling": (
        str,
        "4:2:0",
        option("J:A:B", "Chroma of JPEGs: 4:2:0 or 4:4:4.", panel=_FILES),
    ),
    "optimize": (
        bool,
        False,
        flag("Huffman tables per JPEG: smaller files, slower.", "--optimize", panel=_FILES),
    ),
    "keep_small": (
        bool,
        False,
        flag("Copy files that need no change as they are.", "--keep-small", panel=_FILES),
    ),
    "format": (
        str,
        "webdataset",
        option("FORMAT", "webdataset, tfrecord, parquet, mds or raw.", "--format", "-f"),
    ),
    "shard_samples": (int, 1000, option("N", "Images per shard.", panel=_SHARDS)),
    "shuffle": (int | None, None, option("SEED", "Shuffle with this seed.", panel=_SHARDS)),
    "val": (float, 0.0, option("SHARE", "Fraction for val/; the others go to train/.")),
    "split_seed": (int, 0, option("SEED", "Seed of the split.", panel=_SHARDS)),
    "split_by": (
        str,
        "looks",
        option(
            "HOW",
            "looks: similar images stay on one side; names: split by file name alone.",
            panel=_SHARDS,
        ),
    ),
    "min_side": (int, 1, option("N", "Minimum short side, pixels.", panel=_CHOICE)),
    "max_aspect": (
        float,
        0.0,
        option("X", "Maximum long side / short side; 0: any.", panel=_CHOICE),
    ),
    "only_formats": (
        str,
        "",
        option("NAMES", "Formats to accept, by content, such as jpeg,png.", panel=_CHOICE),
    ),
    "max_pixels": (int, 300_000_000, option("N", "Larger images are refused.", panel=_CHOICE)),
    "dedupe": (
        str,
        "none",
        option("HOW", "Drop duplicates: none, exact (same bytes) or near (similar)."),
    ),
    "distance": (
        int,
        4,
        option("N", "Bits of the dHash that may differ with --dedupe near.", panel=_CHOICE),
    ),
    "exif": (
        str,
        "",
        option("NAMES", "EXIF fields to add as columns: time,camera,lens,gps.", panel=_SHARDS),
    ),
    "absolute_uri": (
        bool,
        False,
        flag(
            "Name source files by full path, not relative to SRC.", "--absolute-uri", panel=_SHARDS
        ),
    ),
    **WITH,
    "with_batch": (int, 16, option("N", "Samples per call of --with.", panel=_SHARDS)),
}
JOB: Options = {
    "label": (
        _Text,
        None,
        option("NAME", "Column, member or feature of the label; '' for none.", panel=_SOURCE),
    ),
    "label_kind": (
        _Text,
        None,
        option(
            "name|index",
            "Integer labels are the name of a class (default in tables) or its index.",
            panel=_SOURCE,
        ),
    ),
    "image": (_Text, None, option("NAME", "Column or feature of the image.", panel=_SOURCE)),
    "caption": (_Text, None, option("NAME", "Column or member of the text.", panel=_SOURCE)),
    "columns": (str, "", option("NAMES", "Metadata columns to keep: A,B.", panel=_SOURCE)),
    "labels": (
        _Text,
        None,
        option("FILE", "Table with the labels of a folder's files.", panel=_SOURCE),
    ),
    "drop_unlabeled": (
        bool,
        False,
        flag("Count files without a row as bad, and continue.", "--drop-unlabeled", panel=_SOURCE),
    ),
    "allow_path": (
        _Texts,
        None,
        option("DIR", "Folder that links and tables may lead to.", panel=_SOURCE),
    ),
    "allow_host": (
        _Texts,
        None,
        option("HOST", "Private host that a table may name.", panel=_SOURCE),
    ),
    "allow_scheme": (
        _Texts,
        None,
        option("NAME", "Scheme that a table may use, such as http.", panel=_SOURCE),
    ),
    "storage_option": (
        _Texts,
        None,
        option("N=V", "name=value for fsspec, for SRC. Can be repeated.", panel=_SOURCE),
    ),
    "workers": (
        int | None,
        None,
        option("N", "Processes; default: one per core.", "--workers", "-w", panel=_WORK),
    ),
    "memory": (_Text, None, option("SIZE", "Memory of all processes, such as 2GB.", panel=_WORK)),
    "ray": (
        _Text,
        None,
        option("ADDRESS", "Run on Ray: auto, or a cluster's address.", panel=_WORK),
    ),
    "part": (
        _Text,
        None,
        option("I/N", "Build one of N parts: 0/8 to 7/8, or auto in Slurm.", panel=_WORK),
    ),
    "max_bad": (
        _Text,
        None,
        option("LIMIT", "Stop if more images are bad, such as 1% or 100.", panel=_WORK),
    ),
    "timeout": (float, 120.0, option("S", "Seconds for one image.", panel=_WORK)),
    "patience": (
        float,
        60.0,
        option("S", "Seconds to retry while SRC's storage is down.", panel=_WORK),
    ),
    "target_option": (
        _Texts,
        None,
        option("N=V", "name=value for fsspec, for DST. Can be repeated.", panel=_WORK),
    ),
    "json_log": (
        Path | None,
        None,
        option("FILE", "Append one JSON object per shard.", panel=_WORK),
    ),
    "as_json": (bool, False, flag("Print the report as JSON.", "--json", panel=_WORK)),
}
RUN: Options = {
    "append": (
        bool,
        False,
        flag("Add new images of SRC to a complete job.", "--append", panel=_WORK),
    ),
    "dry_run": (
        bool,
        False,
        flag("Estimate time and size from a sample; write nothing.", "--dry-run", panel=_WORK),
    ),
}


def with_options(options: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: add options, which the command finds in its context."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [*inspect.signature(command, eval_str=True).parameters.values()]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, shown],
            )
            for name, (kind, default, shown) in options.items()
        ]

        def with_more(**values: Any) -> None:
            command(**{parameter.name: values[parameter.name] for parameter in own})

        with_more.__name__ = command.__name__
        with_more.__doc__ = command.__doc__
        with_more.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        with_more.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
        return with_more

    return decorate
