"""A sampled process for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastfeed.live.stacks.summary import STARVED, FunctionShare, title
from fastfeed.live.stacks.watch import SampledProcess
from fastfeed.printable import printable


def sampled_screen(process: SampledProcess) -> RenderableType:
    """Everything, as wide as the console."""
    summary = process.summary
    head = (
        f"fastfeed watch, process {process.pid}: {summary.samples} samples of the main thread in"
        f" {process.seconds} s"
    )
    parts: list[RenderableType] = [Text(head, style="bold")]
    if process.command:
        parts.append(Text(process.command, style="dim"))
    style = "red" if summary.is_hung or summary.input_share >= STARVED else ""
    parts.append(Text(printable(summary.verdict, None), style=style))
    parts.append(Text(_machine(process)))
    parts.append(_table(summary.functions))
    parts.append(Text(summary.advice))
    errors = f", {process.errors} samples failed" if process.errors else ""
    parts.append(
        Text(f"sampled: shares of samples{errors}; CPU: exact; GPU: estimate by NVML", style="dim")
    )
    parts += [Text(printable(note, None), style="dim") for note in process.notes]
    return Group(*parts)


def _machine(process: SampledProcess) -> str:
    cpu = "unknown" if process.cpu_cores is None else f"{process.cpu_cores:.0%}"
    text = f"main thread computes {cpu} of the time"
    if process.gpu is not None and process.gpu_sm is not None:
        text += f"; GPU {process.gpu.index} ({process.gpu.name}) works {process.gpu_sm:.0%}"
    return text


def _table(functions: tuple[FunctionShare, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("share", justify="right", header_style="cyan", no_wrap=True)
    table.add_column("kind", header_style="cyan", no_wrap=True)
    table.add_column("function, and the line that calls it", header_style="cyan", overflow="fold")
    for function in functions:
        lines = [
            (
                f"{function.function}, below {function.below}"
                if function.function
                else str(function.below)
            )
        ]
        lines += [f"  {function.below.text}"] if function.below.text else []
        table.add_row(
            f"{function.share:.0%}",
            title(function.kind),
            Text("\n".join(printable(line) for line in lines)),
        )
    return table
