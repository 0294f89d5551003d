"""Lines of a terminal: labels in a column, sentences cut to a number of lines, bars of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

__all__ = ["LABEL", "Sheet", "bar", "encodable", "fitted", "mark", "packed", "stacked"]

LABEL = 11  # columns
# part of the budget -> its character, without Unicode, and its style
_MARKS = {
    "compute": ("█", "#", "green"),
    "comm": ("▓", "%", "blue"),
    "h2d": ("▒", "=", "cyan"),
    "other": ("▞", "+", "cyan"),
    "overhead": ("▚", "o", "magenta"),
    "idle": ("░", ".", "red"),
}

_TIED = "\ue000"  # stands for the blank before a percent sign, at which no line may end


@dataclass(frozen=True, slots=True)
class Sheet:
    """Where lines go: as wide as this, and no sentence on more lines than that."""

    console: Console
    width: int
    lines: int

    @property
    def ascii(self) -> bool:
        """The terminal's encoding has no blocks to draw bars with."""
        return not _has(self.console, "█▓▒░▞▚…")

    @property
    def room(self) -> int:
        """Columns beside the labels."""
        return self.width - LABEL

    def label(self, text: str) -> Text:
        """The left column."""
        return Text(fitted(text, LABEL), style="bold" if text else "")

    def labeled(
        self, label: str, text: str, *, style: str = "", indent: int = LABEL, lines: int | None = None
    ) -> list[Text]:
        """A sentence beside its label. A label that is wider than the column takes the style for itself."""
        wide = indent != LABEL
        head = Text(label + "  ", style=style) if wide else self.label(label)
        body = self.sentence(text, style="" if wide else style, lines=lines, width=self.width - indent)
        if wide and len(body) > 1:  # the rest of a headline begins at the left
            body = self.sentence(text, lines=lines, first=indent)
        found = [Text.assemble(head, body[0] if body else "")]
        return found + [line if wide else Text.assemble(" " * indent, line) for line in body[1:]]

    def sentence(
        self, text: str, *, style: str = "", lines: int | None = None, width: int = 0, first: int = 0
    ) -> list[Text]:
        """Wrapped to the width, `first` columns of the first line taken; cut with an ellipsis after some lines."""
        width = max(8, width or self.width)
        most = self.lines if lines is None else lines
        whole = Text("·" * first + text.replace(" %", _TIED + "%"), style=style)
        wrapped = [
            Text(line.plain.rstrip().replace(_TIED, " "), style=style)
            for line in whole.wrap(self.console, width, overflow="fold")
        ]
        if len(wrapped) > most:
            last = fitted(wrapped[most - 1].plain + " " + wrapped[most].plain, width).rstrip()
            wrapped = [*wrapped[: most - 1], Text(last, style=style)]
        return [wrapped[0][first:], *wrapped[1:]] if first and wrapped else wrapped


def fitted(text: str, width: int) -> str:
    """Exactly so many columns: filled with blanks, or cut with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def packed(items: Sequence[str], width: int) -> list[str]:
    """Items side by side, none of them broken, on as few lines as hold them."""
    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1]) + 2 + cell_len(item) <= width:
            lines[-1] += "  " + item
        else:
            lines.append(item if cell_len(item) <= width else fitted(item, width))
    return lines


def bar(share: float, width: int, ascii: bool = False) -> str:
    """A share of the width, in eighths of a column; nothing is drawn for nothing, something for anything."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if ascii:
        return "#" * max(round(eighths / 8), share > 0)
    full, rest = divmod(max(eighths, share > 0), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


def mark(part: str, ascii: bool) -> str:
    """The character of a part of the budget."""
    return _MARKS[part][ascii]


def stacked(parts: Sequence[tuple[str, int]], whole: int, width: int, ascii: bool) -> Text:
    """A bar of all parts; it is full, whatever is rounded."""
    text, done, drawn = Text(), 0, 0
    for part, ns in parts:
        done += ns
        upto = round(width * done / whole) if whole > 0 else 0
        text.append(_MARKS[part][ascii] * max(0, upto - drawn), style=_MARKS[part][2])
        drawn = max(drawn, upto)
    return text


def encodable(line: Text, console: Console) -> Text:
    """The line with what the terminal's encoding lacks replaced."""
    if _has(console, line.plain):
        return line
    made = line.copy()
    made.plain = "".join(char if _has(console, char) else _SPELLED.get(char, "?") for char in line.plain)
    return made


_SPELLED = {"…": ".", "·": "|", "µ": "u", "×": "x", "–": "-", "—": "-"}


def _has(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
