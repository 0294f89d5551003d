"""Facts printed by a command: a title, lines of name and value, numbers in words."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastfeed.printable import printable


def show_facts(console: Console, title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a title and aligned rows; long values wrap within their column."""
    console.print(Text(printable(title, None), style="bold"), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12, style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(f"  {name}"), Text(value))  # Text: brackets are not markup here
    console.print(table)


def show_written(console: Console, contents: str, path: object) -> None:
    """Print the file that has been written, `7 rows -> sheet.png`."""
    console.print(Text.assemble(f"{contents} -> ", (printable(path, None), "bold")), soft_wrap=True)
