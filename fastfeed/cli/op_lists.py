"""What `fastfeed show --ops` was asked for: a recipe, a family, all there is, or a list written in Python."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from fastfeed.errors import ConfigError

__all__ = ["FAMILIES", "Section", "arguments", "sections"]

# the modules of `fastfeed.ops` whose SHOWCASE is drawn; each holds examples of its ops, as users write them
FAMILIES: dict[str, tuple[str, ...]] = {
    "geometry": ("geometry", "crops", "warp"),
    "color": ("color", "jitter"),
    "filters": ("filters",),
    "erasing": ("erasing",),
    "policies": ("policy", "augmix", "compose"),
    "mixing": ("mix",),
    "views": ("views",),
}
UNSEEN = ("decode", "convert", "label")


@dataclass(frozen=True, slots=True)
class Section:
    """Ops under one heading."""

    heading: str  # may be empty
    ops: tuple[Any, ...]
    whole: tuple[Any, ...] = ()  # all of them one after another, where they are one list
    left_out: tuple[Any, ...] = ()  # what cannot be seen in a picture


def sections(text: str) -> list[Section]:
    """Of a recipe's name, a family's, "all", or an expression such as "ColorJitter(0.4), RandAugment()"."""
    from fastfeed import recipes

    if text == "all":
        return [_family(name) for name in FAMILIES]
    if text in FAMILIES:
        return [_family(text)]
    if text in recipes.__all__:
        return [_list(getattr(recipes, text)(), text)]
    return [_list(_evaluated(text), "")]


def arguments(op: Any) -> str:
    """All that are not the default ones."""
    from fastfeed.feed.explain import short

    return short(op)[len(type(op).__name__) + 1 : -1]


def _family(name: str) -> Section:
    modules = [importlib.import_module(f"fastfeed.ops.{module}") for module in FAMILIES[name]]
    return Section(name, tuple(op for module in modules for text in module.SHOWCASE for op in _evaluated(text)))


def _list(ops: list[Any], heading: str) -> Section:
    seen = tuple(op for op in ops if op.kind not in UNSEEN)
    if not seen:
        raise ConfigError(f"--ops {_names(ops)}: nothing of it can be seen; add an op such as RandAugment()")
    left_out = tuple(op for op in ops if op.kind in UNSEEN)
    together = len(seen) > 1 and all(op.kind in ("geometry", "change") for op in seen)
    return Section(heading, seen, seen if together else (), left_out)


def _evaluated(text: str) -> list[Any]:
    """The ops that an expression names. It is the user's own, as what they type at Python's prompt."""
    import fastfeed
    from fastfeed import recipes
    from fastfeed.ops import OPS, View

    known: dict[str, Any] = {"ff": fastfeed, "fastfeed": fastfeed}  # as in a script
    known |= {kind.__name__: kind for kind in (*OPS, View)} | {name: getattr(recipes, name) for name in recipes.__all__}
    try:
        found = eval(text, {"__builtins__": {"range": range}}, known)
    except Exception as error:
        why = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise _refused(text, why) from error
    ops = _flat(found)
    for op in ops:
        if isinstance(op, type) or not hasattr(op, "kind"):
            why = f"{op.__name__} is a class, write {op.__name__}(...)" if isinstance(op, type) else f"{op!r} is no op"
            raise _refused(text, why)
    return ops


def _refused(text: str, why: str) -> ConfigError:
    from fastfeed import recipes

    names = ", ".join([*recipes.__all__, *FAMILIES, "all"])
    why = " ".join(why.split())
    return ConfigError(f"--ops must be one of {names}, or ops such as 'Hue(0.1), RandAugment()', got {text!r}: {why}")


def _flat(found: Any) -> list[Any]:
    if isinstance(found, (list, tuple)):
        return [op for one in found for op in _flat(one)]
    return [found]


def _names(ops: list[Any]) -> str:
    return ", ".join(type(op).__name__ for op in ops)
