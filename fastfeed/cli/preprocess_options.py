"""Options of `fastfeed preprocess`, and their conversion to a recipe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastfeed.cli.open_source import storage_options
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.preprocess.inputs.request import InputRequest
    from fastfeed.preprocess.recipe import Recipe

__all__ = ["engine_of", "limit_of", "opener", "part_of", "recipe_of", "target_options", "with_job_options"]

_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def _option(panel: str | None, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


_OFTEN = None  # first, under "Options"
_SCALE, _FILES, _SHARDS = "Scaling", "Encoding", "Shards"
_CHOICE, _SOURCE, _WORK = "Which photographs", "Source", "Execution"

Source = Annotated[str, typer.Argument(metavar="SRC", help="Folder, shards ('*.tar'), table, URL.", show_default=False)]
Destination = Annotated[str, typer.Argument(metavar="DST", help="Folder or URL, empty or of the same job.")]
Places = Annotated[list[str], typer.Argument(metavar="[SRC] DST", help="SRC, if it is not the one in the plan.")]

Size = Annotated[str, _option(_OFTEN, "Pixels: one side, or height x width.", metavar="N|HxW")]
Mode = Annotated[
    str,
    _option(_OFTEN, "short|long: that side is N; cover: cut; contain: pad; exact; none; buckets.", metavar="MODE"),
]
Filter = Annotated[str, _option(_SCALE, "lanczos, bicubic or area; always antialiased.", metavar="NAME")]
Enlarge = Annotated[bool, _option(_SCALE, "Enlarge small images, too.", "--enlarge")]
FullDecode = Annotated[
    bool, _option(_SCALE, "Decode JPEGs at full size: exact in saturated colors, slower.", "--full-decode")
]
Buckets = Annotated[str, _option(_SCALE, "HxW,HxW: cover the nearest shape.", metavar="SIZES", show_default=False)]
Matte = Annotated[str, _option(_SCALE, "Color behind transparent pixels.", metavar="COLOR")]
Fill = Annotated[str, _option(_SCALE, "Color of the borders in contain.", metavar="COLOR")]

ImageFormat = Annotated[str, _option(_FILES, "jpeg, webp, png, or raw pixels.", metavar="FORMAT")]
Quality = Annotated[int, _option(_FILES, "Of JPEG and WebP, 1 to 100.", metavar="N")]
Subsampling = Annotated[str, _option(_FILES, "Of JPEG: 4:2:0 or 4:4:4.", metavar="J:A:B")]
KeepSmall = Annotated[bool, _option(_FILES, "Pass files through that need no change.", "--keep-small")]

Format = Annotated[
    str, _option(_OFTEN, "webdataset, tfrecord, parquet, mds or raw.", "--format", "-f", metavar="FORMAT")
]
AbsoluteUri = Annotated[
    bool, _option(_SHARDS, "Name source files by full path, not relative to SRC.", "--absolute-uri")
]
Exif = Annotated[str, _option(_SHARDS, "time,camera,lens,gps: as columns.", metavar="NAMES", show_default=False)]
ShardSamples = Annotated[int, _option(_SHARDS, "Photographs per shard.", metavar="N")]
Shuffle = Annotated[int | None, _option(_OFTEN, "Shuffle with this seed.", metavar="SEED", show_default=False)]
Val = Annotated[float, _option(_OFTEN, "Fraction for val/, the rest to train/.", metavar="SHARE")]
SplitBy = Annotated[str, _option(_SHARDS, "looks: similar images stay on one side; names: no survey.", metavar="HOW")]
SplitSeed = Annotated[int, _option(_SHARDS, "Seed of the split.", metavar="SEED")]

MinSide = Annotated[int, _option(_CHOICE, "Minimum short side, pixels.", metavar="N")]
MaxAspect = Annotated[float, _option(_CHOICE, "Maximum long side / short side; 0: any.", metavar="X")]
OnlyFormats = Annotated[
    str, _option(_CHOICE, "jpeg,png,...: detected from the bytes.", metavar="NAMES", show_default=False)
]
MaxPixels = Annotated[int, _option(_CHOICE, "Larger images are refused.", metavar="N")]
Dedupe = Annotated[str, _option(_OFTEN, "Leave out duplicates: none, exact (bytes) or near (looks).", metavar="HOW")]
Distance = Annotated[int, _option(_CHOICE, "Maximum differing dHash bits for near.", metavar="N")]

Label = Annotated[
    str | None, _option(_SOURCE, "Column, member or feature; '' for none.", metavar="NAME", show_default=False)
]
Image = Annotated[str | None, _option(_SOURCE, "Column or feature of the image.", metavar="NAME", show_default=False)]
Caption = Annotated[str | None, _option(_SOURCE, "Column or member of the text.", metavar="NAME", show_default=False)]
Columns = Annotated[str, _option(_SOURCE, "A,B: metadata columns to keep.", metavar="NAMES", show_default=False)]
Labels = Annotated[str | None, _option(_SOURCE, "Table of labels for a folder.", metavar="FILE", show_default=False)]
DropUnlabeled = Annotated[bool, _option(_SOURCE, "Files without a row are bad, not an error.", "--drop-unlabeled")]
AllowPath = Annotated[
    list[str] | None, _option(_SOURCE, "Folder that links and tables may lead to.", metavar="DIR", show_default=False)
]
AllowHost = Annotated[
    list[str] | None, _option(_SOURCE, "Private host a table may name.", metavar="HOST", show_default=False)
]
AllowScheme = Annotated[
    list[str] | None,
    _option(_SOURCE, "Scheme a table may use, such as http; https is allowed.", metavar="NAME", show_default=False),
]
StorageOption = Annotated[
    list[str] | None,
    _option(_SOURCE, "name=value for fsspec, of SRC. Can be repeated.", metavar="N=V", show_default=False),
]

Workers = Annotated[
    int | None, _option(_OFTEN, "Processes; default: one per core.", "--workers", "-w", metavar="N", show_default=False)
]
Memory = Annotated[
    str | None, _option(_WORK, "Memory of all processes, such as 2GB.", metavar="SIZE", show_default=False)
]
Ray = Annotated[
    str | None, _option(_WORK, "Run on Ray: auto, or a cluster's address.", metavar="ADDRESS", show_default=False)
]
PartOption = Annotated[
    str | None, _option(_WORK, "0/8 to 7/8: every 8th shard; auto in Slurm.", metavar="I/N", show_default=False)
]
MaxBad = Annotated[
    str | None, _option(_WORK, "Stop if more photographs are bad: 1% or 100.", metavar="LIMIT", show_default=False)
]
Timeout = Annotated[float, _option(_WORK, "Seconds for one photograph.", metavar="S")]
Patience = Annotated[
    float,
    _option(_WORK, "Seconds to wait for SRC's storage while it answers nothing; then its reads fail.", metavar="S"),
]
TargetOption = Annotated[
    list[str] | None,
    _option(_WORK, "name=value for fsspec, of DST. Can be repeated.", metavar="N=V", show_default=False),
]
JsonLog = Annotated[Path | None, _option(_WORK, "Append one JSON object per shard.", metavar="FILE")]
Append = Annotated[bool, _option(_OFTEN, "Add what is new in SRC to a complete job.", "--append")]
DryRun = Annotated[bool, _option(_OFTEN, "Only estimate from a sample; write nothing.", "--dry-run")]
AsJson = Annotated[bool, _option(_WORK, "Print the report as JSON.", "--json")]


_JOB_OPTIONS: dict[str, tuple[Any, Any]] = {  # annotation and default, by name
    "label": (Label, None),
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
    """Append the options that all shard-building commands share; the command finds them in its context."""
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
    command_with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in all_parameters}
    return command_with_options


def recipe_of(values: Mapping[str, Any]) -> Recipe:
    """The recipe from the options, by name. ConfigError."""
    from fastfeed.preprocess.recipe import Choice, Encoding, Limits, Metadata, Packing, Recipe, Scaling

    buckets, mode = tuple(_sides("--buckets", text) for text in _names(values["buckets"])), values["mode"]
    if buckets and mode == "short":  # the default mode
        mode = "buckets"
    image_format, enlarge = values["image_format"], values["enlarge"]
    if values["format"] == "raw":  # pixels, and all of one size
        mode = "cover" if mode == "short" else mode
        image_format, enlarge = "raw" if image_format == "jpeg" else image_format, enlarge or mode in ("cover", "exact")
    return Recipe(
        Scaling(
            _size(values["size"]), mode, values["filter"], enlarge, buckets,
            _color("--matte", values["matte"]), _color("--fill", values["fill"]), values["full_decode"],
        ),
        Encoding(image_format, values["quality"], values["subsampling"], values["keep_small"]),
        Limits(values["min_side"], values["max_aspect"], _names(values["only_formats"]), values["max_pixels"]),
        Packing(values["format"], values["shard_samples"]),
        Choice(
            values["shuffle"], values["val"], values["split_seed"], values["split_by"], values["dedupe"],
            values["distance"],
        ),
        Metadata(values["absolute_uri"], _names(values["exif"])),
    )  # fmt: skip


def opener(path: str, values: Mapping[str, Any]) -> InputRequest:
    """The source, to be opened when it is needed: listing it may take long."""
    from fastfeed.preprocess.inputs.request import InputRequest
    from fastfeed.storage.retry import RetryPolicy
    from fastfeed.storage.storage import Storage

    policy = RetryPolicy.patient(values["patience"])
    allow = {name: tuple(values[name] or ()) for name in ("allow_path", "allow_host", "allow_scheme")}
    return InputRequest(
        path, label=values["label"], image=values["image"], caption=values["caption"],
        columns=_names(values["columns"]), labels_file=values["labels"],
        missing="drop" if values["drop_unlabeled"] else "error", **allow,
        storage=Storage(storage_options(values["storage_option"] or []), policy=policy),
    )  # fmt: skip


def target_options(values: Mapping[str, Any]) -> dict[str, object] | None:
    """Storage options of DST; None if there are none."""
    return storage_options(values["target_option"] or [], "--target-option") or None


def engine_of(ray: str | None) -> str:
    """The engine for `--ray`."""
    return "local" if ray is None else "ray" if ray == "auto" else f"ray:{ray}"


def part_of(text: str | None) -> tuple[int, int] | None:
    """Parse `--part 3/8`. ConfigError."""
    from fastfeed.preprocess.engines.parts import parse_part

    return None if text is None else parse_part(text)


def limit_of(text: str | None) -> float | None:
    """Parse `--max-bad`: "1%" is the fraction 0.01, "100" a count. ConfigError."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not match or (match[2] and value >= 1) or (not match[2] and value >= 1 and value % 1):
        raise ConfigError(
            f"--max-bad must be a percentage below 100%, such as 1%, or a count, such as 100, got {text!r}"
        )
    return value


def _size(text: str) -> int | tuple[int, int]:
    if text.strip().isdecimal():
        return int(text)
    return _sides("--size", text)


def _sides(option: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,9})\s*[xX×]\s*(\d{1,9})\s*", text)
    if not match:
        examples = "512 or 512x768" if option == "--size" else "512x768,768x512"
        raise ConfigError(f"{option} must be pixels, height x width, such as {examples}, got {text!r}")
    return int(match[1]), int(match[2])


def _color(option: str, text: str) -> tuple[int, int, int]:
    if text.lower() in _COLORS:
        return _COLORS[text.lower()]
    match = re.fullmatch(r"#?([0-9a-fA-F]{6})", text.strip())
    if not match:
        raise ConfigError(f"{option} must be a color such as '#ffffff', {', '.join(_COLORS)}, got {text!r}")
    red, green, blue = bytes.fromhex(match[1])
    return red, green, blue


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
