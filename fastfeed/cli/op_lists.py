"""What `fastfeed show --ops` was asked for: a recipe, a family, all there is, or a list written in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastfeed.errors import ConfigError

__all__ = ["FAMILIES", "Section", "arguments", "sections"]

# one example of every op that can be seen, chosen so that five strengths show what it does
FAMILIES: dict[str, tuple[str, ...]] = {
    "geometry": (
        "Resize((160, 160))",
        'Resize((160, 160), fit="pad")',
        "CenterCrop(160)",
        "Crop(20, 40, 120)",
        'Pad(16, mode="reflect")',
        "RandomCrop(160, padding=40)",
        "RandomResizedCrop(160)",
        "RandomFlip()",
        "Rotate(30)",
        "Affine(20, (0.15, 0.15), (0.7, 1.3), 15)",
        "Perspective(0.6, p=1.0)",
    ),
    "color": (
        "Brightness(0.6)",
        "Contrast(0.8)",
        "Saturation(1.0)",
        "Hue(0.5)",
        "ColorJitter(0.4, 0.4, 0.4, 0.1)",
        "Gamma((0.4, 2.5))",
        "Solarize((0, 256))",
        "Posterize((1, 5))",
        "Grayscale()",
        "Equalize()",
        "AutoContrast()",
        "Invert()",
        "LUT([*range(0, 256, 2), *range(255, 0, -2)])",
    ),
    "filters": (
        "Sharpness((0, 8))",
        "GaussianBlur(sigma=(0.1, 4.0))",
        "GaussianNoise((0, 50))",
        "JPEGCompression((3, 60))",
    ),
    "erasing": (
        "RandomErasing(1.0)",
        'RandomErasing(1.0, fill="noise")',
        "CutOut(50)",
        "GridMask((40, 100))",
    ),
    "policies": (
        "RandAugment(2, 12)",
        "TrivialAugmentWide()",
        'AutoAugment("imagenet")',
        "AugMix(6)",
        "Maybe(GaussianBlur(sigma=(2.0, 4.0)), 0.6)",
        "OneOf([Invert(), Grayscale(), Solarize(100)])",
        "Sequential([RandomFlip(), Brightness(0.5)])",
    ),
    "mixing": (
        "MixUp(1.0)",
        "CutMix(1.0)",
        "Mosaic()",
        "RandomChoice([MixUp(1.0), CutMix(1.0)])",
    ),
    "views": (
        "FiveCrop(120)",
        "TenCrop(120)",
        "MultiCrop((View(160, 2, scale=(0.4, 1.0)), View(96, 3, scale=(0.05, 0.4))))",
    ),
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
    return Section(name, tuple(op for text in FAMILIES[name] for op in _evaluated(text)))


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
