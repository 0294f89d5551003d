"""Counts the files that a listing leaves out, with an example of each kind."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

from fastfeed.printable import printable

# folders that systems and network disks put next to images: thumbnails, deleted files, snapshots
SYSTEM_FOLDERS = frozenset(
    {
        "__MACOSX",
        "$RECYCLE.BIN",
        "$Recycle.Bin",
        "System Volume Information",
        "lost+found",
        "@eaDir",
        "@tmp",
        "#recycle",
        "#snapshot",  # Synology
        "@Recycle",
        "@Recently-Snapshot",
        "@__thumb",  # QNAP
    }
)

_LINKS = ("(loop)", "(link outside)", "(broken link)")  # what users may take for samples

_SYSTEM_FOLDER = re.compile("|".join(map(re.escape, sorted(SYSTEM_FOLDERS))))

_KINDS = {  # one of them, several
    "(none)": ("file without an extension", "files without an extension"),
    "(hidden)": ("hidden file or folder", "hidden files and folders"),  # or one of the system
    "(no class)": ("image outside the class folders", "images outside the class folders"),
    "(loop)": ("link to a folder that contains it", "links to folders that contain them"),
    "(link outside)": ("link that leads out of the folder", "links that lead out of the folder"),
    "(broken link)": ("link that leads nowhere", "links that lead nowhere"),
    "(no name)": ("folder without a name", "folders without a name"),
    "(not UTF-8)": ("image whose name is not UTF-8", "images whose names are not UTF-8"),
}


@dataclass(slots=True)
class SkippedFiles:
    """Counts files that are not samples. A kind is an extension, or one in parentheses."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # by kind: a path below the root

    def add(self, kind: str, example: str, count: int = 1) -> None:
        """Count files of a kind."""
        self.counts[kind] += count
        self.examples.setdefault(kind, example)

    def update(self, other: SkippedFiles) -> None:
        """Add the counts of another one."""
        self.counts.update(other.counts)
        self.examples = other.examples | self.examples

    def summary(self) -> str:
        """The most frequent kinds on one line: `3 .txt, 1 (none)`."""
        return ", ".join(f"{count} {kind}" for kind, count in self.counts.most_common(5))

    def hint(self) -> str:
        """Advice on kinds that other sources read; empty without them."""
        if kind := next((kind for kind in (".tar", ".tfrecord") if self.counts[kind]), None):
            return f"; for shards give a pattern, such as '*{kind}'"
        if kind := next((kind for kind in (".parquet", ".arrow") if self.counts[kind]), None):
            return f"; for tables give a pattern, such as '*{kind}', or use ff.HuggingFace(folder)"
        return ""

    def notes(self) -> list[str]:
        """A line per kind, most frequent first: `left out 3 .txt files, such as a/notes.txt`."""
        return [self._note(kind, count) for kind, count in self.counts.most_common()]

    def links(self) -> list[str]:
        """Notes on links that their owner may take for samples."""
        return [self._note(kind, self.counts[kind]) for kind in _LINKS if self.counts[kind]]

    def _note(self, kind: str, count: int) -> str:
        single, several = _KINDS.get(kind, (f"{kind} file", f"{kind} files"))
        text = f"left out {count:,} {single if count == 1 else several}"
        example = self.examples.get(kind)
        if not example:
            return text
        return f"{text}{': ' if count == 1 else ', such as '}{printable(example)}"


def file_extension(name: str) -> str:
    """The kind of a file by its name: its extension in lower case, or `(none)`."""
    return os.path.splitext(name)[1].lower() or "(none)"


def is_hidden(name: str) -> bool:
    """Return True for dot files and folders that systems keep for themselves (SYSTEM_FOLDERS)."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def may_be_hidden(path: str) -> bool:
    """Quick check for hidden parts in a path separated by slashes."""
    return path.startswith(".") or "/." in path or _SYSTEM_FOLDER.search(path) is not None
