"""Options of `fastfeed preprocess` by panel: name, type, default, metavar, help, option names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastfeed.cli.screen.help import argument, flag, option

Rows = Sequence[tuple[Any, ...]]
_Text = str | None
_Texts = list[str] | None

Source = Annotated[str, argument("SRC", "Folder, shards ('*.tar'), table or URL; only read.")]
Destination = Annotated[str, argument("DST", "Folder or URL; empty, or a job to resume.")]
Places = Annotated[
    list[str], argument("SRC DST", "SRC as before, wherever it is now; DST of the job.")
]

_MODE_HELP = (
    "short or long: that side becomes N; cover: crop; contain: pad; exact: stretch; none; buckets."
)
_FORMAT_HELP = "webdataset, tfrecord, parquet, mds or raw."
_SPLIT_HELP = "looks: similar images stay in one split; names: by file name alone."
_KIND_HELP = "Integers are names of classes (default in tables) or indices; multi: lists of names."
_WHERE_HELP = "Keep samples for which it holds: 'width >= 512 and score > 0.5'."
_WITH_HELP = "module:function that adds arrays, texts or numbers, or drops samples."

# those without a title are shown by --help, the others by --help-all; a flag has no metavar
_FREQUENT: Rows = [
    ("size", str, "512", "N|HxW", "Pixels: one side, or height x width."),
    ("mode", str, "short", "MODE", _MODE_HELP),
    ("format", str, "webdataset", "FORMAT", _FORMAT_HELP, "--format", "-f"),
    ("val", float, 0.0, "SHARE", "Fraction for val/; the others go to train/."),
    ("split", str, "", "SHARES", "Folders and shares, such as train=0.8,val=0.2."),
    ("dedupe", str, "none", "HOW", "Drop exact, near or semantic copies."),
]
_SCALING: Rows = [
    ("filter", str, "lanczos", "NAME", "lanczos, bicubic or area; always antialiased."),
    ("enlarge", bool, False, "", "Enlarge small images, too."),
    ("full_decode", bool, False, "", "Decode JPEGs at full size: exact colors, slower."),
    ("buckets", str, "", "SIZES", "Crop to the nearest shape, as in 512x768,768x512."),
    ("matte", str, "#ffffff", "COLOR", "Color behind transparent pixels."),
    ("fill", str, "#000000", "COLOR", "Color of the borders in contain."),
]
_ENCODING: Rows = [
    ("image_format", str, "jpeg", "FORMAT", "jpeg, webp, png, or raw pixels."),
    ("quality", int, 90, "N", "JPEG or WebP quality, 1 to 100."),
    ("subsampling", str, "4:2:0", "J:A:B", "Chroma of JPEGs: 4:2:0 or 4:4:4."),
    ("optimize", bool, False, "", "Huffman tables per JPEG: smaller files, slower."),
    ("keep_small", bool, False, "", "Copy files that need no change as they are."),
]
_WITH = ("with_", str, "", "FUNCTION", _WITH_HELP, "--with")
_SHARDS: Rows = [
    ("shard_samples", int, 1000, "N", "Images per shard."),
    ("shard_bytes", _Text, None, "SIZE", "Expected bytes per shard instead, such as 256MB."),
    ("shuffle", int | None, None, "SEED", "Shuffle with this seed."),
    ("split_seed", int, 0, "SEED", "Seed of the split."),
    ("split_by", str, "looks", "HOW", _SPLIT_HELP),
    ("group", str, "", "COLUMN", "Values of this column are never in two splits."),
    ("stratify", bool, False, "", "Give each class the shares, to within an image."),
    ("exif", str, "", "NAMES", "EXIF fields to add as columns: time,camera,lens,gps."),
    ("absolute_uri", bool, False, "", "Name source files by full path, not relative to SRC."),
    _WITH,
    ("with_batch", int, 16, "N", "Samples per call of --with."),
]
_LIMITS: Rows = [
    ("min_side", int, 1, "N", "Minimum short side, pixels."),
    ("max_aspect", float, 0.0, "X", "Maximum long side / short side; 0: any."),
    ("only_formats", str, "", "NAMES", "Formats to accept, by content, such as jpeg,png."),
    ("max_pixels", int, 300_000_000, "N", "Larger images are refused."),
    ("where", str, "", "CONDITION", _WHERE_HELP),
    ("keep", str, "largest", "WHICH", "Of duplicates: largest, first (of SRC) or newest."),
    ("mirrored", bool, False, "", "Flipped copies are similar images, too."),
    ("embedding", str, "", "COLUMN", "Embeddings that --dedupe semantic compares."),
    ("similarity", float, 0.95, "X", "Cosine from which embeddings are similar."),
    ("distance", int, 4, "N", "Bits of the dHash that may differ with --dedupe near."),
]
_SOURCE: Rows = [
    ("label", _Text, None, "NAME", "Column, member or feature of the label; '' for none."),
    ("label_kind", _Text, None, "name|index|multi", _KIND_HELP),
    ("image", _Texts, None, "NAME", "Column of the image; of several each as left=COLUMN."),
    ("caption", _Text, None, "NAME", "Column or member of the text."),
    ("columns", str, "", "NAMES", "Metadata columns to keep: A,B."),
    ("column_types", str, "", "N=TYPE", "Types of columns: keywords=list,taken=date."),
    ("labels", _Text, None, "FILE", "Table with the labels of a folder's files."),
    ("drop_unlabeled", bool, False, "", "Count files without a row as bad, and continue."),
    ("allow_path", _Texts, None, "DIR", "Folder that links and tables may lead to."),
    ("allow_host", _Texts, None, "HOST", "Private host that a table may name."),
    ("allow_scheme", _Texts, None, "NAME", "Scheme that a table may use, such as http."),
    ("storage_option", _Texts, None, "N=V", "name=value for fsspec, for SRC. Can be repeated."),
]
_BAD: Rows = [
    ("reason", str, "", "NAMES", "Reasons, such as io_error,timeout."),
    ("class_", _Texts, None, "NAME", "Class. Can be repeated.", "--class"),
    ("folder", _Texts, None, "DIR", "Folder of SRC, with those below. Can be repeated."),
    ("names", Path | None, None, "FILE", "Text file with the names of images, one per line."),
]
_EXECUTION: Rows = [
    ("workers", int | None, None, "N", "Processes; default: one per core.", "--workers", "-w"),
    ("memory", _Text, None, "SIZE", "Memory of all processes, such as 2GB."),
    ("ray", _Text, None, "ADDRESS", "Run on Ray: auto, or a cluster's address."),
    ("gpus_per_worker", float, 0.0, "N", "GPUs of each process of --with, on Ray."),
    ("part", _Text, None, "I/N", "Build one of N parts: 0/8 to 7/8, or auto in Slurm."),
    ("max_bad", _Text, None, "LIMIT", "Stop if more images are bad, such as 1% or 100."),
    ("timeout", float, 120.0, "S", "Seconds for one image."),
    ("patience", float, 60.0, "S", "Seconds to retry while SRC's storage is down."),
    ("target_option", _Texts, None, "N=V", "name=value for fsspec, for DST. Can be repeated."),
    ("json_log", Path | None, None, "FILE", "Append one JSON object per shard."),
    ("as_json", bool, False, "", "Print the report as JSON.", "--json"),
]
_OF_READERS = ("workers", "memory", "timeout", "patience", "target_option")
_RUN: Rows = [
    ("append", bool, False, "", "Add new images of SRC to a complete job."),
    ("dry_run", bool, False, "", "Estimate time and size from a sample; write nothing."),
]
RECIPE: Mapping[str | None, Rows] = {
    None: _FREQUENT,
    "Scaling": _SCALING,
    "Encoding": _ENCODING,
    "Shards": _SHARDS,
    "Which images": _LIMITS,
}
BAD: Mapping[str | None, Rows] = {None: _BAD}
WITH: Mapping[str | None, Rows] = {"Shards": [_WITH]}
READ: Mapping[str | None, Rows] = {
    "Source": _SOURCE,
    "Execution": [row for row in _EXECUTION if row[0] in _OF_READERS],
}
JOB: Mapping[str | None, Rows] = {"Source": _SOURCE, "Execution": _EXECUTION}
RUN: Mapping[str | None, Rows] = {"Execution": _RUN}


def with_options(
    *tables: Mapping[str | None, Rows],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with options, whose values are in its context."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [*inspect.signature(command, eval_str=True).parameters.values()]
        rows = [(title, row) for table in tables for title, part in table.items() for row in part]
        added = [_parameter(title, *row) for title, row in rows]

        def with_more(**values: Any) -> None:
            command(**{parameter.name: values[parameter.name] for parameter in own})

        with_more.__name__ = command.__name__
        with_more.__doc__ = command.__doc__
        with_more.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        with_more.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
        return with_more

    return decorate


def _parameter(
    panel: str | None, name: str, kind: Any, default: Any, metavar: str, help: str, *names: str
) -> inspect.Parameter:
    if kind is bool:
        shown = flag(help, *(names or (f"--{name.replace('_', '-')}",)), panel=panel)
    else:
        shown = option(metavar, help, *names, panel=panel)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword_only, default=default, annotation=Annotated[kind, shown])
