"""What can be said to `fastfeed preprocess`, and what it means: texts of a command line into values of the recipe."""

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
    from fastfeed.preprocess.inputs.inputs import Input
    from fastfeed.preprocess.recipe import Recipe
    from fastfeed.preprocess.targets.target import Target

__all__ = ["at_work", "engine_of", "limit_of", "opener", "part_of", "recipe_of", "target_options"]

_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def _option(panel: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


_SCALE, _FILES, _SHARDS = "What becomes of a photograph", "How it is written", "What shards are"
_CHOICE, _SOURCE, _WORK = "Which photographs", "What the source says", "How the work is done"

Source = Annotated[str, typer.Argument(metavar="SRC", help="Folder, shards ('*.tar'), table, URL.", show_default=False)]
Destination = Annotated[str, typer.Argument(metavar="DST", help="Folder or URL, empty or of the same job.")]
Places = Annotated[list[str], typer.Argument(metavar="[SRC] DST", help="SRC where it is not the one in the plan.")]

Size = Annotated[str, _option(_SCALE, "Pixels: one side, or height x width.", metavar="N|HxW")]
Mode = Annotated[
    str, _option(_SCALE, "short|long: that side is N; cover: cut; contain: pad; exact; none; buckets.", metavar="MODE")
]
Filter = Annotated[str, _option(_SCALE, "lanczos, bicubic or area; always antialiased.", metavar="NAME")]
Enlarge = Annotated[bool, _option(_SCALE, "Also make small ones larger.", "--enlarge")]
Buckets = Annotated[str, _option(_SCALE, "HxW,HxW: the nearest shape is covered.", metavar="SIZES", show_default=False)]
Matte = Annotated[str, _option(_SCALE, "Behind what is transparent.", metavar="COLOR")]
Fill = Annotated[str, _option(_SCALE, "Of the borders that contain leaves.", metavar="COLOR")]

ImageFormat = Annotated[str, _option(_FILES, "jpeg, webp, png, or raw pixels.", metavar="FORMAT")]
Quality = Annotated[int, _option(_FILES, "Of JPEG and WebP, 1 to 100.", metavar="N")]
Subsampling = Annotated[str, _option(_FILES, "Of JPEG: 4:2:0 or 4:4:4.", metavar="J:A:B")]
KeepSmall = Annotated[bool, _option(_FILES, "Pass on files that need no change, once decoded whole.", "--keep-small")]

Format = Annotated[
    str, _option(_SHARDS, "webdataset, tfrecord, parquet, mds or raw.", "--format", "-f", metavar="FORMAT")
]
ShardSamples = Annotated[int, _option(_SHARDS, "Photographs per shard.", metavar="N")]
Shuffle = Annotated[int | None, _option(_SHARDS, "Mix the order, by this seed.", metavar="SEED", show_default=False)]
Val = Annotated[float, _option(_SHARDS, "Share that goes to val/, the rest to train/.", metavar="SHARE")]
SplitBy = Annotated[
    str, _option(_SHARDS, "looks: what looks alike stays on one side; names: no first pass.", metavar="HOW")
]
SplitSeed = Annotated[int, _option(_SHARDS, "Another one is another split.", metavar="SEED")]

MinSide = Annotated[int, _option(_CHOICE, "Pixels of the short side, at least.", metavar="N")]
MaxAspect = Annotated[float, _option(_CHOICE, "Long side / short side, at most; 0: any.", metavar="X")]
OnlyFormats = Annotated[str, _option(_CHOICE, "jpeg,png,...: as in the bytes.", metavar="NAMES", show_default=False)]
MaxPixels = Annotated[int, _option(_CHOICE, "Larger ones are bombs.", metavar="N")]
Dedupe = Annotated[str, _option(_CHOICE, "none, exact (bytes) or near (looks).", metavar="HOW")]
Distance = Annotated[int, _option(_CHOICE, "Bits of 64 in which near ones may differ.", metavar="N")]

Label = Annotated[str | None, _option(_SOURCE, "Column, member or feature; '' for none.", show_default=False)]
Image = Annotated[str | None, _option(_SOURCE, "Column or feature of the image.", show_default=False)]
Caption = Annotated[str | None, _option(_SOURCE, "Column or member of the text.", show_default=False)]
Columns = Annotated[str, _option(_SOURCE, "A,B: what else travels along.", metavar="NAMES", show_default=False)]
Labels = Annotated[str | None, _option(_SOURCE, "Table about a folder's files.", metavar="FILE", show_default=False)]
DropUnlabeled = Annotated[bool, _option(_SOURCE, "Files without a row are bad, not an error.", "--drop-unlabeled")]
StorageOption = Annotated[
    list[str] | None, _option(_SOURCE, "name=value for fsspec.", metavar="N=V", show_default=False)
]

Workers = Annotated[
    int | None, _option(_WORK, "Processes; else one per core.", "--workers", "-w", metavar="N", show_default=False)
]
Memory = Annotated[str | None, _option(_WORK, "Of all of them, such as 2GB.", metavar="SIZE", show_default=False)]
Ray = Annotated[str | None, _option(_WORK, "auto, or a cluster's address.", metavar="ADDRESS", show_default=False)]
Part = Annotated[
    str | None, _option(_WORK, "0/8 to 7/8: every 8th shard; auto in Slurm.", metavar="I/N", show_default=False)
]
MaxBad = Annotated[str | None, _option(_WORK, "Stop beyond: 1% or 100.", metavar="LIMIT", show_default=False)]
Timeout = Annotated[float, _option(_WORK, "Seconds for one photograph.", metavar="S")]
TargetOption = Annotated[
    list[str] | None, _option(_WORK, "name=value for fsspec, of DST.", metavar="N=V", show_default=False)
]
JsonLog = Annotated[Path | None, _option(_WORK, "One JSON object per shard is added to it.", metavar="FILE")]
DryRun = Annotated[bool, _option(_WORK, "Only estimate, from a sample; write nothing.", "--dry-run")]
AsJson = Annotated[bool, _option(_WORK, "The report as JSON.", "--json")]


_AT_WORK: dict[str, tuple[Any, Any]] = {  # kind and default, by name
    "label": (Label, None),
    "image": (Image, None),
    "caption": (Caption, None),
    "columns": (Columns, ""),
    "labels": (Labels, None),
    "drop_unlabeled": (DropUnlabeled, False),
    "storage_option": (StorageOption, None),
    "workers": (Workers, None),
    "memory": (Memory, None),
    "ray": (Ray, None),
    "part": (Part, None),
    "max_bad": (MaxBad, None),
    "timeout": (Timeout, 120.0),
    "target_option": (TargetOption, None),
    "json_log": (JsonLog, None),
    "as_json": (AsJson, False),
}


def at_work(command: Callable[..., None]) -> Callable[..., None]:
    """Options of all commands that make shards, behind the command's own; it finds them in its context."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    last = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(name, last, default=given, annotation=kind) for name, (kind, given) in _AT_WORK.items()]
    all = [*(p for p in own if p.kind != last), *more, *(p for p in own if p.kind == last)]

    def taken(**given: Any) -> None:
        command(**{parameter.name: given[parameter.name] for parameter in own})

    taken.__name__, taken.__doc__ = command.__name__, command.__doc__
    taken.__signature__ = inspect.Signature(all)  # type: ignore[attr-defined]  # functions may have one
    taken.__annotations__ = {parameter.name: parameter.annotation for parameter in all}
    return taken


def recipe_of(given: Mapping[str, Any]) -> Recipe:
    """From the options, by name. ConfigError."""
    from fastfeed.preprocess.recipe import Choice, Encoding, Limits, Packing, Recipe, Scaling

    buckets, mode = tuple(_sides("--buckets", one) for one in _names(given["buckets"])), given["mode"]
    if buckets and mode == "short":  # the default
        mode = "buckets"
    return Recipe(
        Scaling(
            _size(given["size"]), mode, given["filter"], given["enlarge"], buckets, _color("--matte", given["matte"]),
            _color("--fill", given["fill"]),
        ),
        Encoding(given["image_format"], given["quality"], given["subsampling"], given["keep_small"]),
        Limits(given["min_side"], given["max_aspect"], _names(given["only_formats"]), given["max_pixels"]),
        Packing(given["format"], given["shard_samples"]),
        Choice(
            given["shuffle"], given["val"], given["split_seed"], given["split_by"], given["dedupe"], given["distance"]
        ),
    )  # fmt: skip


def opener(place: str, given: Mapping[str, Any]) -> Callable[[Target | None], Input]:
    """Opens the source when it is needed: looking through it may take a while."""
    storage = storage_options(given["storage_option"] or [])
    columns = _names(given["columns"])

    def opened(target: Target | None) -> Input:
        from fastfeed.preprocess.inputs.inputs import listing_prefix, open_input

        return open_input(
            place, label=given["label"], image=given["image"], caption=given["caption"], columns=columns,
            labels_file=given["labels"], missing="drop" if given["drop_unlabeled"] else "error", storage=storage,
            keep=None if target is None else listing_prefix(target),
        )  # fmt: skip

    return opened


def target_options(given: Mapping[str, Any]) -> dict[str, object] | None:
    """Of DST; None where there are none."""
    return storage_options(given["target_option"] or [], "--target-option") or None


def engine_of(ray: str | None) -> str:
    """`--ray`."""
    return "local" if ray is None else "ray" if ray == "auto" else f"ray:{ray}"


def part_of(text: str | None) -> tuple[int, int] | None:
    """`--part 3/8`. ConfigError."""
    from fastfeed.preprocess.engines.parts import parse_part

    return None if text is None else parse_part(text)


def limit_of(text: str | None) -> float | None:
    """`--max-bad`: "1%" is 0.01, a share; "100" a count. ConfigError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not found or (found[2] and value >= 1) or (not found[2] and value >= 1 and value % 1):
        raise ConfigError(f"--max-bad must be a share below 100%, such as 1%, or a count, such as 100, got {text!r}")
    return value


def _size(text: str) -> int | tuple[int, int]:
    if text.strip().isdecimal():
        return int(text)
    return _sides("--size", text)


def _sides(option: str, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,9})\s*[xX×]\s*(\d{1,9})\s*", text)
    if not found:
        one = "512 or 512x768" if option == "--size" else "512x768,768x512"
        raise ConfigError(f"{option} must be pixels, height x width, such as {one}, got {text!r}")
    return int(found[1]), int(found[2])


def _color(option: str, text: str) -> tuple[int, int, int]:
    if text.lower() in _COLORS:
        return _COLORS[text.lower()]
    found = re.fullmatch(r"#?([0-9a-fA-F]{6})", text.strip())
    if not found:
        raise ConfigError(f"{option} must be a color such as '#ffffff', {', '.join(_COLORS)}, got {text!r}")
    red, green, blue = bytes.fromhex(found[1])
    return red, green, blue


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
