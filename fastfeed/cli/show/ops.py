"""Parser of `fastfeed show --ops`: a recipe, a family, "all", a file, or a list of ops in Python."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfeed.errors import ConfigError

# the modules of `fastfeed.ops` whose SHOWCASE is drawn; each holds examples of its ops, as users
# write them
FAMILIES: dict[str, tuple[str, ...]] = {
    "geometry": ("geometry", "crops", "object_crops", "warp", "distort"),
    "color": ("color", "levels"),
    "filters": ("filters",),
    "erasing": ("erasing",),
    "policies": ("policy", "timm_policy", "augmix", "compose"),
    "mixing": ("mix",),
    "views": ("views",),
}
UNSEEN = ("decode", "convert", "label", "map")


@dataclass(frozen=True, slots=True)
class OpSection:
    """Ops that are shown under one heading."""

    heading: str  # may be empty
    ops: tuple[Any, ...]
    combined: tuple[Any, ...] = ()  # all of them one after another, where they are one list
    skipped: tuple[Any, ...] = ()  # what cannot be seen in a picture


def sections(text: str, allow_functions: bool = False) -> list[OpSection]:
    """Parse the name of a recipe or family, "all", "ColorJitter(0.4), RandAugment()" or a JSON file.

    allow_functions: import those that the file names.
    """
    from fastfeed import recipes
    from fastfeed.ops.ops_file import load_ops

    if text.lower().endswith(".json"):
        return [_list(load_ops(text, allow_functions=allow_functions), Path(text).name)]
    if text == "all":
        return [_family(name) for name in FAMILIES]
    if text in FAMILIES:
        return [_family(text)]
    if text in recipes.__all__:
        return [_list(getattr(recipes, text)(), text)]
    return [_list(_evaluate(text), "")]


def arguments(op: Any) -> str:
    """The arguments of an op that differ from the defaults, as text."""
    from fastfeed.feed.explain import short

    return short(op)[len(type(op).__name__) + 1 : -1]


def _family(name: str) -> OpSection:
    modules = [importlib.import_module(f"fastfeed.ops.{module}") for module in FAMILIES[name]]
    return OpSection(
        name, tuple(op for module in modules for text in module.SHOWCASE for op in _evaluate(text))
    )


def _list(ops: list[Any], heading: str) -> OpSection:
    visible = tuple(op for op in ops if op.kind not in UNSEEN)
    if not visible:
        raise ConfigError(f"--ops {_names(ops)}: nothing to draw; add an op such as RandAugment()")
    skipped = tuple(op for op in ops if op.kind in UNSEEN)
    together = len(visible) > 1 and all(op.kind in ("geometry", "change") for op in visible)
    return OpSection(heading, visible, visible if together else (), skipped)


def _evaluate(text: str) -> list[Any]:
    """Evaluate an expression. It is typed by the user, who could run any Python anyway."""
    import fastfeed
    from fastfeed import recipes
    from fastfeed.ops import OPS, View

    known: dict[str, Any] = {"ff": fastfeed, "fastfeed": fastfeed}  # as in a script
    known |= {kind.__name__: kind for kind in (*OPS, View)} | {
        name: getattr(recipes, name) for name in recipes.__all__
    }
    try:
        value = eval(text, {"__builtins__": {"range": range}}, known)
    except Exception as error:
        why = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise _refused(text, why) from error
    ops = _flat(value)
    for op in ops:
        if isinstance(op, type) or not hasattr(op, "kind"):
            why = (
                f"{op.__name__} is a class, write {op.__name__}(...)"
                if isinstance(op, type)
                else f"{op!r} is not an op"
            )
            raise _refused(text, why)
    return ops


def _refused(text: str, why: str) -> ConfigError:
    from fastfeed import recipes

    names = ", ".join([*recipes.__all__, *FAMILIES, "all", "FILE.json"])
    why = " ".join(why.split())
    return ConfigError(
        f"--ops must be one of {names}, or ops such as 'Hue(0.1), RandAugment()', got {text!r}:"
        f" {why}"
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [op for item in value for op in _flat(item)]
    return [value]


def _names(ops: list[Any]) -> str:
    return ", ".join(type(op).__name__ for op in ops)
