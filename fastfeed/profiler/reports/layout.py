"""Terminal layout: labels in a column, sentences of limited lines, bars of characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

LABEL = 11  # columns
# part of the time breakdown -> its character, its ASCII character, its style
_MARKS = {
    "compute": ("█", "#", "green"),
    "comm": ("▓", "%", "blue"),
    "h2d": ("▒", "=", "cyan"),
    "other": ("▞", "+", "cyan"),
    "overhead": ("▚", "o", "magenta"),
    "idle": ("░", ".", "red"),
}

_NO_BREAK = "\ue000"  # stands for the space before a percent sign, where lines must not break


@dataclass(frozen=True, slots=True)
class Sheet:
    """The output: its width, and the maximum number of lines of a sentence."""

    console: Console
    width: int
    lines: int

    @property
    def ascii(self) -> bool:
        """True if the terminal's encoding lacks the block characters for bars."""
        return not _can_encode(self.console, "█▓▒░▞▚…")

    @property
    def room(self) -> int:
        """Columns to the right of the labels."""
        return self.width - LABEL

    def label(self, text: str) -> Text:
        """The left column of a line."""
        return Text(fitted(text, LABEL), style="bold" if text else "")

    def labeled(
        self,
        label: str,
        text: str,
        *,
        style: str = "",
        indent: int = LABEL,
        lines: int | None = None,
    ) -> list[Text]:
        """A sentence next to its label.

        If the label is wider than the column, only the label is styled.
        """
        is_wide = indent != LABEL
        head = Text(label + "  ", style=style) if is_wide else self.label(label)
        body = self.sentence(
            text, style="" if is_wide else style, lines=lines, width=self.width - indent
        )
        if is_wide and len(body) > 1:  # the rest of a headline starts at the left margin
            body = self.sentence(text, lines=lines, first=indent)
        result = [Text.assemble(head, body[0] if body else "")]
        return result + [
            line if is_wide else Text.assemble(" " * indent, line) for line in body[1:]
        ]

    def listed(self, label: str, texts: Iterable[str], **options: Any) -> list[Text]:
        """Sentences, the first next to the label; options as of `labeled`."""
        lines: list[Text] = []
        for text in texts:
            lines += self.labeled("" if lines else label, text, **options)
        return lines

    def sentence(
        self,
        text: str,
        *,
        style: str = "",
        lines: int | None = None,
        width: int = 0,
        first: int = 0,
    ) -> list[Text]:
        """Lines of this width, the first `first` columns reserved; an ellipsis after `lines`."""
        width = max(8, width or self.width)
        limit = self.lines if lines is None else lines
        full_text = Text("·" * first + text.replace(" %", _NO_BREAK + "%"), style=style)
        wrapped = [
            Text(line.plain.rstrip().replace(_NO_BREAK, " "), style=style)
            for line in full_text.wrap(self.console, width, overflow="fold")
        ]
        if len(wrapped) > limit:
            last = fitted(wrapped[limit - 1].plain + " " + wrapped[limit].plain, width).rstrip()
            wrapped = [*wrapped[: limit - 1], Text(last, style=style)]
        return [wrapped[0][first:], *wrapped[1:]] if first and wrapped else wrapped


def fitted(text: str, width: int) -> str:
    """Exactly this many columns: padded with spaces, or truncated with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def pack_lines(items: Sequence[str], width: int) -> list[str]:
    """Unbroken items, several per line, on as few lines as possible."""
    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1]) + 2 + cell_len(item) <= width:
            lines[-1] += "  " + item
        else:
            lines.append(item if cell_len(item) <= width else fitted(item, width))
    return lines


def bar(share: float, width: int, ascii: bool = False) -> str:
    """A bar for this share of the width, in eighths of a column; empty only for 0."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if ascii:
        return "#" * max(round(eighths / 8), share > 0)
    full, rest = divmod(max(eighths, share > 0), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


def mark(part: str, ascii: bool) -> str:
    """The character of a part of the time breakdown."""
    return _MARKS[part][ascii]


def stacked(parts: Sequence[tuple[str, int]], window: int, width: int, ascii: bool) -> Text:
    """A bar of all parts, always full despite rounding."""
    text = Text()
    total = 0
    columns = 0
    for part, ns in parts:
        total += ns
        target = round(width * total / window) if window > 0 else 0
        text.append(_MARKS[part][ascii] * max(0, target - columns), style=_MARKS[part][2])
        columns = max(columns, target)
    return text


def show(lines: Iterable[Text], console: Console) -> None:
    """Print lines, none wider than the console."""
    for line in lines:
        line.rstrip()
        console.print(
            encodable(line, console), no_wrap=True, overflow="crop", highlight=False, crop=True
        )


def encodable(line: Text, console: Console) -> Text:
    """The line with characters replaced that the terminal cannot encode."""
    if _can_encode(console, line.plain):
        return line
    replaced = line.copy()
    replaced.plain = "".join(
        char if _can_encode(console, char) else _REPLACEMENTS.get(char, "?") for char in line.plain
    )
    return replaced


_REPLACEMENTS = {"…": ".", "·": "|", "µ": "u", "×": "x", "–": "-", "—": "-"}


def _can_encode(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
