"""Facts printed by a command: a title, and lines of name and value."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show_facts"]


def show_facts(console: Console, title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a title and aligned rows; long values wrap within their column."""
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12, style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(f"  {name}"), Text(value))  # Text: brackets are not markup here
    console.print(table)
