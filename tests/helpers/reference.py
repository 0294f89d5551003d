"""What the API reference consists of, and what is missing in the docstring of a public thing."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastfeed as ff
from fastfeed.ops.base import FrozenOp

# modules outside `fastfeed.__all__` that the documentation names
MODULES = (
    "fastfeed.preprocess",
    "fastfeed.profiler",
    "fastfeed.profiler.reports.document",
    "fastfeed.decode.recode",
)
# protocols: their members are documented there once, for all ops, sources and orders
CONTRACTS = {
    "fastfeed.ops": (
        "fastfeed.ops.base",
        ("Op", "Simple", "Geometry", "Composite", "Mixing", "Splitting", "SizeChoice"),
    ),
    "fastfeed.sources": (
        "fastfeed.sources.base",
        (
            "Source",
            "Fetching",
            "Addressable",
            "HasNotes",
            "Sharded",
            "Annotated",
            "ReadsColumns",
            "Named",
            "HasObjects",
            "BlockReader",
            "HasByteRanges",
        ),
    ),
    "fastfeed.sampling": ("fastfeed.sampling.base", ("Order",)),
}
# members that the text of a protocol documents: of ops, which have them as class variables or as
# properties, and of orders, which may have them
_PROSE = {
    "fastfeed.ops": {"kind", "draws", "filter", "border", "group"},
    "fastfeed.sampling": {"run", "once", "alike"},
}
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example):$", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+)(?: \((.+?)\))?: ", re.MULTILINE)
# "Default: None, as many as there are." explains a None
_DEFAULT = re.compile(r"Default: (.+?)\.(?:\s|$)")
_REFUSES = re.compile(
    r"\braise\b|\bcheck_\w+\(|\b_check\w*\(|\.bounds\(\)|\._bounds\(\)|\bchecked_\w+\("
)
_PLAIN = (bool, int, float, str, tuple, type(None))


@dataclass(frozen=True)
class Subject:
    """A public class, function, method or property."""

    name: str  # fastfeed.ops.geometry.Resize.out
    module: str
    value: Any  # a class or function; of a property its getter
    kind: str  # "class", "protocol", "function", "method", "property"
    doc: str
    shown: bool  # a class's own example calls this method


def subjects() -> dict[str, Subject]:
    """Every public thing by its full name; a member of a protocol appears once, at the protocol."""
    found: dict[str, Subject] = {}
    for value in _tops():
        if inspect.isclass(value) or inspect.isfunction(value):
            for subject in _with_members(value):
                found[subject.name] = subject
    return found


def _tops() -> Iterator[Any]:
    for name in ff.__all__:
        value = getattr(ff, name)
        if inspect.ismodule(value):
            yield from (getattr(value, each) for each in value.__all__)
        elif hasattr(value, "__module__"):
            yield value
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            if (value := getattr(module, name)) is not None and not inspect.ismodule(value):
                yield value
    for name, protocols in CONTRACTS.values():
        module = importlib.import_module(name)
        yield from (getattr(module, each) for each in protocols)


def _with_members(value: Any) -> Iterator[Subject]:
    module, name = value.__module__, f"{value.__module__}.{value.__qualname__}"
    doc = inspect.cleandoc(value.__doc__ or "")
    if not inspect.isclass(value):
        yield Subject(name, module, value, "function", doc, False)
        return
    is_protocol = getattr(value, "_is_protocol", False)
    yield Subject(name, module, value, "protocol" if is_protocol else "class", doc, False)
    members = {  # its own, and those of bases that are not public themselves
        member: (base, held)
        for base in reversed(value.__mro__)
        if base.__module__.startswith("fastfeed")
        and not (base is not value and getattr(base, "_is_protocol", False))
        for member, held in vars(base).items()
    }
    for member, (base, held) in members.items():
        if member.startswith("_") or (not is_protocol and member in _contract(base.__module__)):
            continue
        if inspect.isfunction(held) and held.__qualname__ == member:
            continue  # a public function, which is documented as one
        getter, kind = _getter(held)
        if (
            getter is not None and getter.__annotations__.get("return") != "NoReturn"
        ):  # only says what to do instead
            # its own, or that of the method it overrides
            own = inspect.getdoc(getattr(value, member)) or ""
            shown = is_protocol or bool(re.search(rf">>>.*\.{member}\(", doc))
            home = f"{base.__module__}.{base.__qualname__}"
            yield Subject(f"{home}.{member}", base.__module__, getter, kind, own, shown)


def _contract(module: str) -> set[str]:
    """Names of members that a protocol documents."""
    members: set[str] = set()
    for package, (home, protocols) in CONTRACTS.items():
        if module.startswith(package + "."):
            members |= _PROSE.get(package, set())
            for protocol in protocols:
                held = getattr(importlib.import_module(home), protocol)
                members |= {
                    n for n in (*vars(held), *held.__annotations__) if not n.startswith("_")
                }
    return members


def _getter(held: Any) -> tuple[Any, str]:
    if isinstance(held, property):
        return held.fget, "property"
    if isinstance(held, (classmethod, staticmethod)):
        held = held.__func__
    return (
        (inspect.unwrap(held), "method") if inspect.isfunction(inspect.unwrap(held)) else (None, "")
    )


def complaints(subject: Subject) -> list[str]:
    """What its docstring lacks, a line each."""
    if not subject.doc:
        return ["no docstring"]
    lines = []
    sections = _sections(subject.doc)
    summary = subject.doc.split("\n\n")[0]
    if "\n" in summary or not summary.endswith((".", ":", "`")):
        lines.append(f"the summary must be one line that ends in a full stop, got {summary!r}")
    if subject.kind in ("property", "protocol"):
        return lines
    lines += _about_args(subject, sections.get("Args", ""))
    if (
        subject.kind != "class"
        and _returns(subject.value)
        and not {"Returns", "Yields"} & sections.keys()
    ):
        lines.append("no Returns")
    if _refuses(subject) and "Raises" not in sections:
        lines.append("no Raises, though it refuses arguments")
    if not subject.shown and ">>>" not in sections.get("Example", ""):
        lines.append("no Example")
    return lines


def _sections(doc: str) -> dict[str, str]:
    marks = [*_SECTION.finditer(doc)]
    ends = [mark.start() for mark in marks[1:]] + [len(doc)]
    return {
        mark[1]: textwrap.dedent(doc[mark.end() + 1 : end])
        for mark, end in zip(marks, ends, strict=False)
    }


def _about_args(subject: Subject, text: str) -> list[str]:
    lines, entries = [], [*_ENTRY.finditer(text)]
    ends = [entry.start() for entry in entries[1:]] + [len(text)]
    documented = {
        entry[1]: (entry[2], text[entry.end() : end])
        for entry, end in zip(entries, ends, strict=False)
    }
    parameters = _parameters(subject)
    for name, parameter in parameters.items():
        if name not in documented:
            lines.append(f"parameter {name} is not documented")
            continue
        kind, said = documented[name]
        if not kind:
            lines.append(f"parameter {name} has no type")
        default, given = parameter.default, _DEFAULT.search(" ".join(said.split()))
        if default is inspect.Parameter.empty:
            if given:
                lines.append(f"parameter {name} has no default, documented is {given[1]}")
        elif given is None:
            lines.append(f"parameter {name} has the default {default!r}, which is not documented")
        elif (
            isinstance(default, _PLAIN) and len(repr(default)) < 60 and not _same(given[1], default)
        ):
            lines.append(f"parameter {name} has the default {default!r}, documented is {given[1]}")
    return lines + [
        f"{name} is documented and no parameter" for name in documented if name not in parameters
    ]


def _same(text: str, default: Any) -> bool:
    if default is None:
        return text == "None" or text.startswith("None, ")
    try:
        return eval(text, {"__builtins__": {}}) == default
    except (SyntaxError, NameError, TypeError):
        return False


def _parameters(subject: Subject) -> dict[str, inspect.Parameter]:
    value = subject.value
    if inspect.isclass(value):
        if issubclass(value, BaseException) and "__init__" not in vars(value):
            return {}
        parameters = inspect.signature(value).parameters
    else:
        parameters = inspect.signature(value).parameters
    names = [n for i, n in enumerate(parameters) if not (subject.kind == "method" and i == 0)]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {stars.get(parameters[n].kind, "") + n: parameters[n] for n in names}


def _returns(function: Any) -> bool:
    return function.__annotations__.get("return", "None") not in ("None", None)


def _refuses(subject: Subject) -> bool:
    """Whether its own code, or that of the constructor, raises or calls a check of arguments."""
    if inspect.isclass(subject.value):
        if issubclass(subject.value, BaseException):
            return False
        checks = "_check" if hasattr(subject.value, "_check") else "__post_init__"
        makers = [getattr(subject.value, name, None) for name in ("__init__", checks)]
        own = [each for each in makers if inspect.isfunction(each) and each is not FrozenOp._check]
        return any(_REFUSES.search(_code(maker)) for maker in own)
    return bool(
        (re.compile(r"\braise \w") if subject.kind == "method" else _REFUSES).search(
            _code(subject.value)
        )
    )


def _code(function: Any) -> str:
    """Its code without docstrings and comments; empty for one that was generated."""
    try:
        return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, SyntaxError):
        return ""


def run_examples(subject: Subject) -> str:
    """The report of its doctests that fail; empty if all print what they say.

    `ff` and `np` are imported.
    """
    parser, report = doctest.DocTestParser(), []
    test = parser.get_doctest(subject.doc, {"ff": ff, "np": np}, subject.name, None, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
    return "".join(report)
