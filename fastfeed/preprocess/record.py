"""The JSON beside a shard: what is in it, what is not and why. A shard is done when it is there and fits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.preprocess.counts import Tally

__all__ = ["BadSample", "Part", "Record"]


def _visible(text: str) -> str:
    """One line, safe for a terminal: names come from strangers, and may hold what moves cursors or paints."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a shard."""

    name: str  # below the target: "train/shard-000012.tar"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BadSample:
    """One photograph that is not in a shard, and why."""

    id: int  # in the source
    uri: str
    reason: str  # a key of reasons.REASONS
    detail: str = ""

    def __str__(self) -> str:
        return _visible(f"{self.uri}: {self.reason}" + (f" ({self.detail})" if self.detail else ""))


@dataclass(frozen=True, slots=True)
class Record:
    """What one shard holds."""

    shard: str  # its name without suffix: "train/shard-000012"
    index: int  # in the plan
    plan: str  # hash of the plan that it is a piece of
    files: tuple[Part, ...]  # the main one first
    ids: tuple[int, ...]  # in the source, of what is in it, in its order
    offsets: tuple[int, ...]  # of each in the main file, bytes; () where that means nothing
    bad: tuple[BadSample, ...]
    tally: Tally = field(default_factory=Tally)  # counts over the good ones

    @property
    def name(self) -> str:
        """Of this record's file."""
        return f"{self.shard}.json"

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(part.bytes for part in self.files)

    def dump(self) -> bytes:
        """The file's content; the same for the same record."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes, name: str) -> Record:
        """From a file of this name. SourceError where it is not one."""
        try:
            document: dict[str, Any] = json.loads(content)
            return cls(
                **document
                | {
                    "files": tuple(Part(**part) for part in document["files"]),
                    "bad": tuple(BadSample(**bad) for bad in document["bad"]),
                    "ids": tuple(document["ids"]),
                    "offsets": tuple(document["offsets"]),
                    "tally": Tally(**document["tally"]),
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{name} is no record of a shard: {error}") from error
