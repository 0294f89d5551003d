"""Pages of the reference that are generated: Python from the public names, the command line from its commands."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import typer

import fastfeed
from fastfeed.cli import app
from fastfeed.cli.screen import help as command_help

PREPROCESS, PROFILER, DOCUMENT, DECODE = map(
    importlib.import_module,
    (
        "fastfeed.preprocess",
        "fastfeed.profiler",
        "fastfeed.profiler.reports.document",
        "fastfeed.decode",
    ),
)
# what else a feed has, adapters call
FEED = [
    "plan",
    "batches",
    "seek",
    "state",
    "restore",
    "set_weights",
    "stats",
    "fields",
    "close",
]
FEED += ["to_keras", "to_tfdata", "to_jax", "to_torch"]
MODULES = ("errors", "keras", "recipes", "scaling", "timm")
SHORT = {"__version__", *MODULES}
EXTENDING = {  # section of the page -> its first words, module, and the classes of it that are documented
    "Sources": ("A source of your own has these members: [how to add one](../CONTRIBUTING.md).",
                "fastfeed.sources.base", "Source Fetching Addressable HasNotes Sharded Annotated ReadsColumns Named HasObjects "
                "BlockReader HasByteRanges"),
    "Ops": ("An op of your own has these members: [how to add one](../CONTRIBUTING.md).",
            "fastfeed.ops.base", "Op Simple Geometry Composite Mixing Splitting SizeChoice"),
    "Orders": ("The order of samples, as `Feed(shuffle=...)` takes it.", "fastfeed.sampling.base", "Order"),
    "Framework adapters": ("What an adapter gets of a feed.", "fastfeed.feed.session", "FeedSession"),
}  # fmt: skip
PYTHON = {  # page -> title, first words, public names; ops are those of fastfeed.ops
    "feed": ("Feed", "Turns samples into batches.", "Feed Transform Batch Field Boxes FeedStats show Preview Spec GpuDecode prefetch_to_device to_original"),
    "sources": (
        "Sources",
        "Where samples come from: [with examples](../sources.md).",
        "ImageFolder Files TarShards TFRecords Table HuggingFace Arrays MDSShards RawShards Mapped Mixture Objects Together"
        " take split folds where Cache Storage",
    ),
    "order": ("Order and resume", "[What they mean](../concepts/order.md).",
              "Plan Blocks Balanced ClassBatches Weighted Repeated Buckets Curriculum CustomOrder save_state load_state"),
    "lists": ("Lists of ops", "[For evaluation](../augmentations.md#for-evaluation), and"
              " [in files](../augmentations.md#in-files).",
              "evaluation save_ops load_ops BucketSize RandomSizes BySchedule LargestSize"),
    "faults": ("Faults and errors", "[What happens when something fails](../failures.md).",
               "FaultPolicy Failure Outage errors"),
    "watch": ("Watch", "Whether a trainer waits, while it runs: [the command](../watching.md).",
              "Watch Watched StepWatch watched Tracker GPUStarved"),
    "prove": ("Prove", "What a step's input costs: [the command](../proving.md).", "prove Proof"),
    "keras": ("Keras", "Its functions of the same names: [one line changes](../coming_from.md#keras-and-tfdata), and a callback.", "keras"),
    "timm": ("timm", "Its function of the same name: [one line changes](../coming_from.md#timm).", "timm"),
    "ranks": ("Ranks and recipes", "[How to launch ranks](../launching.md).", "World pin_gpu scaling recipes"),
}  # fmt: skip


@functools.cache
def pages() -> dict[str, str]:
    """Every generated page: its name below docs/, and its Markdown."""
    ops = importlib.import_module("fastfeed.ops").__all__
    named = {name for _, _, names in PYTHON.values() for name in names.split()}
    public = set(fastfeed.__all__) - set(ops)  # type: ignore[attr-defined]
    if missing := public - named - SHORT:
        raise ValueError(
            f"docs/site/reference.py: a page of PYTHON should have {', '.join(sorted(missing))}"
        )
    if gone := named - public:
        raise ValueError(
            f"docs/site/reference.py: not public, so not to be in PYTHON: {', '.join(sorted(gone))}"
        )
    texts = {
        page: python(title, words, names.split()) for page, (title, words, names) in PYTHON.items()
    }
    texts["ops"] = python(
        "Ops", "What can be done to an image: [with pictures](../augmentations.md).", sorted(ops)
    )
    texts["preprocess"] = python(
        "Preprocess",
        "Builds shards from photographs: [guide](../preprocess.md).",
        PREPROCESS.__all__,
        PREPROCESS,
    )
    texts["profiler"] = python(
        "Profiler",
        "Explains idle GPUs, from traces: [the command](../profiling.md).",
        PROFILER.__all__,
        PROFILER,
    )
    texts["profiler"] += python(
        "", "The result as JSON: [every field](../profile_json.md).", ["as_dict"], DOCUMENT
    )
    texts["decode"] = python("Decode", "Makes photographs smaller files.", ["Recoder"], DECODE)
    texts["extending"] = extending()
    texts["cli"] = command_line()
    return {f"reference/{page}.md": text for page, text in texts.items()}


def python(title: str, words: str, names: list[str], package: Any = fastfeed) -> str:
    """A page of public names, for mkdocstrings."""
    lines = [f"# {title}", ""] if title else []
    lines += [words, ""]
    prefix = "ff" if package is fastfeed else package.__name__
    for name in names:
        value = getattr(package, name)
        if inspect.ismodule(value):
            held = {key: getattr(value, key) for key in value.__all__}
            entries = [
                (f"{each.__module__}.{each.__qualname__}", f"{prefix}.{name}.{key}")
                for key, each in held.items()
                if callable(each)
            ]
        elif hasattr(value, "__qualname__"):
            entries = [(f"{value.__module__}.{value.__qualname__}", f"{prefix}.{name}")]
        else:
            entries = [(f"{package.__name__}.{name}", f"{prefix}.{name}")]
        for path, heading in entries:
            lines += [
                f"::: {path}",
                "    options:",
                f'      heading: "{heading}"',
                f'      toc_label: "{heading}"',
            ]
            if title == "Ops" or name == "Feed":
                lines += [
                    f"      members: {FEED if name == 'Feed' else members(value)}",
                    "      inherited_members: true",
                ]
            elif inspect.isclass(value) and (inherited := inherited_members(value)):
                lines.append(f"      inherited_members: {inherited}")
            lines.append("")
    return "\n".join(lines)


def llms(pages: dict[str, str]) -> str:
    """llms.txt: the pages of the site, and the API on one page, for editors and agents.

    pages: the source of each page by its name in the site.
    """
    lines = ["# fastfeed", "", f"> {inspect.getdoc(fastfeed).splitlines()[0]}", "", "## Pages", ""]
    for name, text in sorted(pages.items()):
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), name)
        lines.append(f"- [{title}]({name.removesuffix('.md')}/)")
    lines += ["", "## API", "", "`import fastfeed as ff`", ""]
    for name in sorted(set(fastfeed.__all__) - {"__version__"}):  # type: ignore[attr-defined]
        value = getattr(fastfeed, name)
        if inspect.ismodule(value):
            lines += [line(f"ff.{name}.{key}", getattr(value, key)) for key in value.__all__]
        else:
            lines.append(line(f"ff.{name}", value))
        if name == "Feed":
            lines += [line(f"feed.{key}", getattr(value, key)) for key in FEED]
    return "\n".join(lines) + "\n"


def line(name: str, value: Any) -> str:
    """One public thing: how it is called, and the first line of its text."""
    call = ""
    if callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException)):
        parameters = inspect.signature(value).parameters
        own = [each.replace(annotation=each.empty) for each in parameters.values()]
        call = f"({', '.join(str(each) for each in own if each.name != 'self')})"
    text = inspect.getdoc(value) or ""
    return f"- `{name}{call}`: {text.splitlines()[0] if text else ''}"


def members(op: type) -> list[str] | str:
    """What an op has besides the members of all ops, which are for the compiler of ops."""
    methods = [
        name for name, held in vars(op).items() if name[0] != "_" and is_documented(op, name, held)
    ]
    return [name for name in methods if name not in contract(op)] or "false"


def inherited_members(value: type) -> list[str]:
    """Members from classes of fastfeed that have no entry of their own."""
    bases = [base for base in value.__mro__[1:] if base.__module__.startswith("fastfeed")]
    held = {
        name: each
        for base in reversed(bases)
        for name, each in vars(base).items()
        if base.__name__[0] != "_"
    }
    own = {*vars(value), *contract(value)}
    return [
        name
        for name, each in held.items()
        if name[0] != "_" and name not in own and is_documented(value, name, each)
    ]


def is_documented(owner: type, name: str, held: Any) -> bool:
    """A method or a property with a text, its own or an inherited one, and not one that only raises."""
    function = getattr(held, "fget", None) or getattr(held, "__func__", held)
    raises = getattr(function, "__annotations__", {}).get("return") == "NoReturn"
    return (
        inspect.isfunction(inspect.unwrap(function))
        and bool(inspect.getdoc(getattr(owner, name)))
        and not raises
    )


@functools.cache
def contract(value: type) -> frozenset[str]:
    """Members of a class that the protocols of its package document."""
    names: set[str] = set()
    for _, module, protocols in EXTENDING.values():
        if not value.__module__.startswith(module.rpartition(".")[0] + "."):
            continue
        for protocol in protocols.split():
            held = getattr(importlib.import_module(module), protocol)
            if getattr(held, "_is_protocol", False):
                names |= {*vars(held), *held.__annotations__}
    if value.__module__.startswith("fastfeed.ops."):
        names |= {
            "kind",
            "draws",
            "filter",
            "border",
            "group",
        }  # class variables of some ops, properties of others
    return frozenset(name for name in names if name[0] != "_")


def extending() -> str:
    """The page of protocols."""
    lines = [
        "# Extending fastfeed",
        "",
        "What a source, an op, an order or an adapter of your own has or calls.",
        "",
    ]
    for title, (words, module, names) in EXTENDING.items():
        lines += [f"## {title}", "", words, ""]
        for name in names.split():
            path = f"{module}.{name}"
            lines += [
                f"::: {path}",
                "    options:",
                f'      heading: "{name}"',
                f'      toc_label: "{name}"',
            ]
            lines += ["      heading_level: 3", ""]
    return "\n".join(lines)


def command_line() -> str:
    """Commands with their examples, arguments and options, as their help shows them."""
    lines = ["# Command line", "", "The same text as `fastfeed COMMAND --help-all`."]
    lines += [
        "`fastfeed` alone, and a group without a command, print their help and exit with 2.",
        "",
    ]
    lines[-2] += (
        " With [shell completion](../installing.md#shell-completion), Tab completes commands and options."
    )
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        lines += section(f"fastfeed {name}", command)
        for below, inner in getattr(command, "commands", {}).items():
            lines += section(f"fastfeed {name} {below}", inner, "###")
    return "\n".join(lines)


def section(name: str, command: Any, level: str = "##") -> list[str]:
    """One command: what it does, examples, usage, a table."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    text, examples = command_help.paragraphs(command.help)
    lines = [f"{level} {name}", "", plain("\n\n".join(text)), "", "```bash", *examples, "```", ""]
    lines += ["```text", usage, "```", ""]
    for title, rows in command_help.panels(command.params, context).items():
        lines += [f"| {title.lower()} | |", "|---|---|"]
        lines += [f"| `{cell(names)}` | {cell(plain(help))} |" for names, help in rows]
        lines.append("")
    if command.epilog:
        lines += [plain(command.epilog), ""]
    return lines


def plain(text: str) -> str:
    """Paragraphs of help as Markdown; an angle bracket is one."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(paragraphs).replace("<", "&lt;")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
