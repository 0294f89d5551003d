"""Options of `fastfeed preprocess`; preprocess_values makes a recipe of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["with_job_options"]


def _option(panel: str | None, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


_OFTEN = None  # under "Options"; the others are behind --help-all
_SCALE, _FILES, _SHARDS = "Scaling", "Encoding", "Shards"
_CHOICE, _SOURCE, _WORK = "Which photographs", "Source", "Execution"

Source = Annotated[
    str,
    typer.Argument(
        metavar="SRC", help="Folder, shards ('*.tar'), table or URL; only read.", show_default=False
    ),
]
Destination = Annotated[
    str, typer.Argument(metavar="DST", help="Folder or URL: empty, or of the same job.")
]
Places = Annotated[
    list[str],
    typer.Argument(metavar="SRC DST", help="SRC as before, wherever it is now; DST of the job."),
]

Size = Annotated[str, _option(_OFTEN, "Pixels: one side, or height x width.", metavar="N|HxW")]
Mode = Annotated[
    str,
    _option(
        _OFTEN,
        "short (default) or long: that side becomes N; cover: crop; contain: pad; exact: stretch;"
        " none; buckets.",
        metavar="MODE",
        show_default=False,
    ),
]
Filter = Annotated[
    str, _option(_SCALE, "lanczos, bicubic or area; always antialiased.", metavar="NAME")
]
Enlarge = Annotated[bool, _option(_SCALE, "Enlarge small images, too.", "--enlarge")]
FullDecode = Annotated[
    bool,
    _option(
        _SCALE, "Decode JPEGs at full size: exact in saturated colors, slower.", "--full-decode"
    ),
]
Buckets = Annotated[
    str,
    _option(
        _SCALE,
        "Crop to the nearest shape, as in 512x768,768x512.",
        metavar="SIZES",
        show_default=False,
    ),
]
Matte = Annotated[str, _option(_SCALE, "Color behind transparent pixels.", metavar="COLOR")]
Fill = Annotated[str, _option(_SCALE, "Color of the borders in contain.", metavar="COLOR")]

ImageFormat = Annotated[str, _option(_FILES, "jpeg, webp, png, or raw pixels.", metavar="FORMAT")]
Quality = Annotated[int, _option(_FILES, "JPEG or WebP quality, 1 to 100.", metavar="N")]
Subsampling = Annotated[str, _option(_FILES, "Chroma of JPEGs: 4:2:0 or 4:4:4.", metavar="J:A:B")]
Optimize = Annotated[
    bool, _option(_FILES, "Huffman tables per JPEG: smaller files, slower.", "--optimize")
]
KeepSmall = Annotated[
    bool, _option(_FILES, "Copy files that need no change as they are.", "--keep-small")
]

Format = Annotated[
    str,
    _option(
        _OFTEN,
        "webdataset (default), tfrecord, parquet, mds or raw.",
        "--format",
        "-f",
        metavar="FORMAT",
        show_default=False,
    ),
]
AbsoluteUri = Annotated[
    bool, _option(_SHARDS, "Name source files by full path, not relative to SRC.", "--absolute-uri")
]
Exif = Annotated[
    str,
    _option(
        _SHARDS,
        "EXIF fields to add as columns: time,camera,lens,gps.",
        metavar="NAMES",
        show_default=False,
    ),
]
With = Annotated[
    str,
    _option(
        _SHARDS,
        "module:function that adds arrays, texts or numbers to samples, such as embeddings.",
        "--with",
        metavar="FUNCTION",
        show_default=False,
    ),
]
WithBatch = Annotated[int, _option(_SHARDS, "Samples per call of --with.", metavar="N")]
ShardSamples = Annotated[int, _option(_SHARDS, "Photographs per shard.", metavar="N")]
Shuffle = Annotated[
    int | None, _option(_SHARDS, "Shuffle with this seed.", metavar="SEED", show_default=False)
]
Val = Annotated[
    float, _option(_OFTEN, "Fraction for val/; the others go to train/.", metavar="SHARE")
]
SplitBy = Annotated[
    str,
    _option(
        _SHARDS,
        "looks: similar images stay on one side; names: split by file name, without looking at"
        " images.",
        metavar="HOW",
    ),
]
SplitSeed = Annotated[int, _option(_SHARDS, "Seed of the split.", metavar="SEED")]

MinSide = Annotated[int, _option(_CHOICE, "Minimum short side, pixels.", metavar="N")]
MaxAspect = Annotated[
    float, _option(_CHOICE, "Maximum long side / short side; 0: any.", metavar="X")
]
OnlyFormats = Annotated[
    str,
    _option(
        _CHOICE,
        "Formats to accept, by content, such as jpeg,png.",
        metavar="NAMES",
        show_default=False,
    ),
]
MaxPixels = Annotated[int, _option(_CHOICE, "Larger images are refused.", metavar="N")]
Dedupe = Annotated[
    str,
    _option(
        _OFTEN,
        "Drop duplicates: exact (same bytes) or near (similar).",
        metavar="HOW",
        show_default=False,
    ),
]
Distance = Annotated[
    int, _option(_CHOICE, "Bits of the dHash that may differ with --dedupe near.", metavar="N")
]

Label = Annotated[
    str | None,
    _option(
        _SOURCE,
        "Column, member or feature of the label; '' for none.",
        metavar="NAME",
        show_default=False,
    ),
]
LabelKind = Annotated[
    str | None,
    _option(
        _SOURCE,
        "Integer labels are the name of a class (default in tables) or its index.",
        metavar="name|index",
        show_default=False,
    ),
]
Image = Annotated[
    str | None,
    _option(_SOURCE, "Column or feature of the image.", metavar="NAME", show_default=False),
]
Caption = Annotated[
    str | None,
    _option(_SOURCE, "Column or member of the text.", metavar="NAME", show_default=False),
]
Columns = Annotated[
    str, _option(_SOURCE, "Metadata columns to keep: A,B.", metavar="NAMES", show_default=False)
]
Labels = Annotated[
    str | None,
    _option(
        _SOURCE, "Table with the labels of a folder's files.", metavar="FILE", show_default=False
    ),
]
DropUnlabeled = Annotated[
    bool,
    _option(_SOURCE, "Count files without a row as bad instead of stopping.", "--drop-unlabeled"),
]
AllowPath = Annotated[
    list[str] | None,
    _option(
        _SOURCE, "Folder that links and tables may lead to.", metavar="DIR", show_default=False
    ),
]
AllowHost = Annotated[
    list[str] | None,
    _option(_SOURCE, "Private host that a table may name.", metavar="HOST", show_default=False),
]
AllowScheme = Annotated[
    list[str] | None,
    _option(
        _SOURCE, "Scheme that a table may use, such as http.", metavar="NAME", show_default=False
    ),
]
StorageOption = Annotated[
    list[str] | None,
    _option(
        _SOURCE,
        "name=value for fsspec, for SRC. Can be repeated.",
        metavar="N=V",
        show_default=False,
    ),
]

Workers = Annotated[
    int | None,
    _option(
        _WORK,
        "Processes; default: one per core.",
        "--workers",
        "-w",
        metavar="N",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    _option(_WORK, "Memory of all processes, such as 2GB.", metavar="SIZE", show_default=False),
]
Ray = Annotated[
    str | None,
    _option(
        _WORK, "Run on Ray: auto, or a cluster's address.", metavar="ADDRESS", show_default=False
    ),
]
PartOption = Annotated[
    str | None,
    _option(
        _WORK,
        "Build one of N parts: 0/8 to 7/8, or auto in Slurm.",
        metavar="I/N",
        show_default=False,
    ),
]
MaxBad = Annotated[
    str | None,
    _option(
        _WORK,
        "Stop if more photographs are bad, such as 1% or 100.",
        metavar="LIMIT",
        show_default=False,
    ),
]
Timeout = Annotated[float, _option(_WORK, "Seconds for one photograph.", metavar="S")]
Patience = Annotated[
    float,
    _option(_WORK, "Seconds to retry while SRC's storage is down.", metavar="S"),
]
TargetOption = Annotated[
    list[str] | None,
    _option(
        _WORK, "name=value for fsspec, for DST. Can be repeated.", metavar="N=V", show_default=False
    ),
]
JsonLog = Annotated[
    Path | None, _option(_WORK, "Append one JSON object per shard.", metavar="FILE")
]
Append = Annotated[
    bool, _option(_WORK, "Add new photographs of SRC to a complete job.", "--append")
]
DryRun = Annotated[
    bool, _option(_WORK, "Estimate time and size from a sample; write nothing.", "--dry-run")
]
AsJson = Annotated[bool, _option(_WORK, "Print the report as JSON.", "--json")]


_JOB_OPTIONS: dict[str, tuple[Any, Any]] = {  # annotation and default, by name
    "label": (Label, None),
    "label_kind": (LabelKind, None),
    "image": (Image, None),
    "caption": (Caption, None),
    "columns": (Columns, ""),
    "labels": (Labels, None),
    "drop_unlabeled": (DropUnlabeled, False),
    "allow_path": (AllowPath, None),
    "allow_host": (AllowHost, None),
    "allow_scheme": (AllowScheme, None),
    "storage_option": (StorageOption, None),
    "workers": (Workers, None),
    "memory": (Memory, None),
    "ray": (Ray, None),
    "part": (PartOption, None),
    "max_bad": (MaxBad, None),
    "timeout": (Timeout, 120.0),
    "patience": (Patience, 60.0),
    "target_option": (TargetOption, None),
    "json_log": (JsonLog, None),
    "as_json": (AsJson, False),
}


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Append the options that all shard-building commands share; the command finds them in its
    context.
    """
    own_parameters = inspect.signature(command, eval_str=True).parameters.values()
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    job_parameters = [
        inspect.Parameter(name, keyword_only, default=default, annotation=kind)
        for name, (kind, default) in _JOB_OPTIONS.items()
    ]
    all_parameters = [
        *(p for p in own_parameters if p.kind != keyword_only),
        *job_parameters,
        *(p for p in own_parameters if p.kind == keyword_only),
    ]

    def command_with_options(**values: Any) -> None:
        command(**{parameter.name: values[parameter.name] for parameter in own_parameters})

    command_with_options.__name__, command_with_options.__doc__ = command.__name__, command.__doc__
    command_with_options.__signature__ = inspect.Signature(all_parameters)  # type: ignore[attr-defined]
    command_with_options.__annotations__ = {
        parameter.name: parameter.annotation for parameter in all_parameters
    }
    return command_with_options
