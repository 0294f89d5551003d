"""Option values of `fastfeed preprocess`, converted for the library, and back to words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastfeed.cli.open_source import storage_options
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.preprocess.inputs.source_spec import SourceSpec
    from fastfeed.preprocess.model.bad_filter import BadFilter
    from fastfeed.preprocess.model.recipe import Recipe

_SECRET = re.compile(
    r"^((?:--[\w-]+=)?[\w.-]*(?:secret|token|passw|credential|key)[\w.-]*=).*$", re.I | re.S
)
_COLORS = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """The recipe from the options, by name. ConfigError."""
    from fastfeed.preprocess.model import recipe

    buckets = tuple(_sides("--buckets", text) for text in _names(values["buckets"]))
    changed = dict(
        values,
        size=_size(values["size"]),
        buckets=buckets,
        matte=_color("--matte", values["matte"]),
        fill=_color("--fill", values["fill"]),
        image=values["image_format"],
        formats=_names(values["only_formats"]),
        samples=values["shard_samples"],
        split=_shares(values["split"]),
        shard_bytes=values["shard_bytes"] or 0,
        exif=_names(values["exif"]),
        extras=values["with_"],
        extras_batch=values["with_batch"],
    )
    if buckets and changed["mode"] == "short":  # the default mode
        changed["mode"] = "buckets"
    if values["format"] == "raw":  # pixels, and all of one size
        if changed["mode"] == "short":
            changed["mode"] = "cover"
        if changed["image"] == "jpeg":
            changed["image"] = "raw"
        changed["enlarge"] = values["enlarge"] or changed["mode"] in ("cover", "exact")

    def part(kind: Any) -> Any:
        names = (field.name for field in fields(kind))
        return kind(**{name: changed[name] for name in names if name in changed})

    return recipe.Recipe(
        part(recipe.Scaling),
        part(recipe.Encoding),
        part(recipe.Limits),
        part(recipe.Packing),
        part(recipe.Selection),
        part(recipe.Metadata),
    )


_TYPE = re.compile(r"[^,=]+=[^,(]*(?:\([^)]*\)?)?|[^,]+")  # decimal(10,2) has a comma


def opener(path: str, values: Mapping[str, Any]) -> SourceSpec:
    """The source, to be opened when it is needed: listing it may take long."""
    from fastfeed.preprocess.inputs.source_spec import SourceSpec
    from fastfeed.storage.retry import RetryPolicy
    from fastfeed.storage.storage import Storage

    policy = RetryPolicy.patient(values["patience"])
    image = values["image"]  # several columns, or one
    allow: dict[str, Any] = {
        name: tuple(values[name] or ()) for name in ("allow_path", "allow_host", "allow_scheme")
    }
    return SourceSpec(
        path,
        label=values["label"],
        image=image[0] if isinstance(image, list) and len(image) == 1 else image or None,
        caption=values["caption"],
        columns=_names(values["columns"]),
        column_types=tuple(_TYPE.findall(values["column_types"])),
        labels_file=values["labels"],
        missing="drop" if values["drop_unlabeled"] else "error",
        **allow,
        label_kind=values["label_kind"],
        storage=Storage(storage_options(values["storage_option"] or []), policy=policy),
    )


def parse_bad_filter(values: Mapping[str, Any]) -> tuple[BadFilter, list[str]]:
    """The bad images that --reason, --class, --folder and --names select, and these as words.

    ConfigError.
    """
    from fastfeed.preprocess.model.bad_filter import BadFilter

    classes = values["class_"] or ()
    folders = values["folder"] or ()
    file = values["names"]
    names: list[str] = []
    if file is not None:
        try:
            # lines as in bad.jsonl: bytes that are not UTF-8 are escaped there
            text = Path(file).read_text("utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}", field="names") from error
        names = [name for line in text.split("\n") if (name := line.removesuffix("\r"))]
        if not names:
            raise ConfigError(f"{file} has no name", field="names")
    reasons = _names(values["reason"])
    words = ["--reason", ",".join(reasons)] if reasons else []
    words += [word for name in classes for word in ("--class", name)]
    words += [word for name in folders for word in ("--folder", name)]
    words += ["--names", str(file)] if file is not None else []
    return BadFilter(reasons, classes, folders, names), words


def target_options(given: Sequence[str] | None) -> dict[str, object] | None:
    """Storage options of DST, or None."""
    return storage_options(list(given or ()), "--target-option") or None


def parse_part_option(text: str | None) -> tuple[int, int] | None:
    """Parse `--part 3/8` as (3, 8). ConfigError."""
    from fastfeed.preprocess.engines.named import parse_part

    return None if text is None else parse_part(text)


def parse_max_bad(text: str | None) -> float | None:
    """Parse `--max-bad`: "1%" is the fraction 0.01, "100" a count. ConfigError."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not match or (match[2] and value >= 1) or (not match[2] and value >= 1 and value % 1):
        allowed = "a percentage below 100%, such as 1%, or a count, such as 100"
        raise ConfigError(f"--max-bad must be {allowed}, got {text!r}")
    return value


def job_command(
    verb: str,
    source: str,
    dst: str,
    extras: str,
    *options: str,
    request: Mapping[str, Any],
    target: Sequence[str] | None,
) -> str:
    """A command line that continues a job: it names everything that is read or imported.

    request: the options that open the source, as `SourceSpec.document`. target: values of
    --target-option.
    """
    words = [verb, source, dst]
    words += ["--with", extras] if extras else []
    words += [*options, *_source_words(request)]
    words += [word for value in target or () for word in ("--target-option", without_secret(value))]
    return command_line(*words)


def command_line(*words: str) -> str:
    """A line for a shell, `fastfeed preprocess ...`."""
    return " ".join(["fastfeed preprocess", *map(_quoted, words)])


def _quoted(word: str) -> str:
    """A word for a shell; bash and zsh read $'\\x1b' for what a terminal must not be sent."""
    if word.isprintable():
        return shlex.quote(word)

    def escaped(c: str) -> str:
        if c.isprintable() and c not in "\\'":
            return c
        errors = "surrogateescape" if "\udc80" <= c <= "\udcff" else "replace"
        return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", errors))

    return f"$'{''.join(map(escaped, word))}'"


def without_secret(word: str) -> str:
    """A word of a command line; the value of an option that looks like a secret is left out."""
    return _SECRET.sub(r"\1...", word)


def _source_words(request: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in request.items():
        if name == "missing":
            words.append("--drop-unlabeled")
            continue
        option = "--labels" if name == "labels_file" else f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        for item in [",".join(value)] if name.startswith("column") else values:
            words += [option, item]
    return words


def _size(text: str) -> int | tuple[int, int]:
    if text.strip().isdecimal():
        return int(text)
    return _sides("--size", text)


def _sides(option: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,9})\s*[xX×]\s*(\d{1,9})\s*", text)
    if not match:
        examples = "512 or 512x768" if option == "--size" else "512x768,768x512"
        allowed = f"pixels, height x width, such as {examples}"
        raise ConfigError(f"{option} must be {allowed}, got {text!r}")
    return int(match[1]), int(match[2])


def _shares(text: str) -> dict[str, float]:
    """Parse `--split train=0.8,val=0.2` into shares by name. ConfigError."""
    shares: dict[str, float] = {}
    for part in _names(text):
        name, _, share = (word.strip() for word in part.partition("="))
        if not re.fullmatch(r"[0-9]*[.]?[0-9]+", share) or name in shares:
            allowed = "names with a share each, such as train=0.8,val=0.1,test=0.1"
            raise ConfigError(f"--split must be {allowed}, got {text!r}")
        shares[name] = float(share)
    return shares


def _color(option: str, text: str) -> tuple[int, int, int]:
    if text.lower() in _COLORS:
        return _COLORS[text.lower()]
    match = re.fullmatch(r"#?([0-9a-fA-F]{6})", text.strip())
    if not match:
        allowed = f"a color such as '#ffffff', {', '.join(_COLORS)}"
        raise ConfigError(f"{option} must be {allowed}, got {text!r}")
    red, green, blue = bytes.fromhex(match[1])
    return red, green, blue


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
