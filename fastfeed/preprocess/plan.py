"""Which photographs go into which shard: decided once, then a file. Nothing that happens later moves a photograph."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.recipe import Recipe, digest

__all__ = ["ORDER", "PLAN", "JobPlan", "Shard", "make_plan", "uri_prefixes", "version_differences"]

PLAN, ORDER = "_job/plan.json", "_job/order.npy"


@dataclass(frozen=True, slots=True)
class Shard:
    """A slice of the order."""

    index: int
    name: str  # without suffix: "shard-000012", "val/shard-000003", "train/512x768/shard-000000"
    first: int  # in the order
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """What a job will do."""

    recipe: Recipe
    source: str  # as the user named it, without options: they may hold secrets
    fingerprint: str  # of the source
    length: int  # photographs in the source
    classes: tuple[str, ...]  # names by label
    order: np.ndarray  # int64, shape (planned,): ids in the source, shard by shard
    groups: tuple[tuple[str, int], ...]  # folder ("" is the target itself) and how many of the order are in it
    left_out: dict[str, int] = field(default_factory=dict)  # planned in no shard: how many by reason (duplicates)
    made_with: dict[str, str] = field(default_factory=dict)  # libraries that bytes depend on, by version; {}: any
    first_uri: str = ""  # of the source's first photograph: another run may name the same source in another way

    def __len__(self) -> int:
        return len(self.order)

    @property
    def shards(self) -> list[Shard]:
        """All of them. Each group begins with a shard of its own, numbered from 0."""
        found: list[Shard] = []
        start = 0
        for folder, count in self.groups:
            for k, first in enumerate(range(0, count, self.recipe.packing.samples)):
                last = min(first + self.recipe.packing.samples, count)
                name = f"{folder}/shard-{k:06d}" if folder else f"shard-{k:06d}"
                found.append(Shard(len(found), name, start + first, start + last))
            start += count
        return found

    @property
    def hash(self) -> str:
        """Of all that decides the shards' bytes."""
        return digest({**self._head(), "order": digest(self.order.tolist())})

    def _head(self) -> dict[str, Any]:
        return {
            "version": 1,
            "recipe": self.recipe.document(),
            "fingerprint": self.fingerprint,
            "length": self.length,
            "classes": list(self.classes),
            "groups": [list(group) for group in self.groups],
            "made_with": self.made_with,
        }

    def files(self) -> dict[str, bytes]:
        """Content of the plan's files by name; PLAN is to be written last."""
        order = io.BytesIO()
        np.save(order, self.order)
        about = {"hash": self.hash, "source": self.source, "first_uri": self.first_uri, "left_out": self.left_out}
        head = {**about, **self._head()}
        return {ORDER: order.getvalue(), PLAN: json.dumps(head, indent=1).encode() + b"\n"}

    @classmethod
    def load(cls, plan: bytes, order: bytes, where: str) -> JobPlan:
        """From these files' contents. SourceError where they are damaged."""
        try:
            head = json.loads(plan)
            found = cls(
                Recipe.of(head["recipe"]), head["source"], head["fingerprint"], head["length"], tuple(head["classes"]),
                np.load(io.BytesIO(order), allow_pickle=False), tuple((name, count) for name, count in head["groups"]),
                head["left_out"], head["made_with"], head.get("first_uri", ""),
            )  # fmt: skip
            if head["hash"] != found.hash:
                raise ValueError(f"its hash is {found.hash}, not {head['hash']}")
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"the plan in {where}/_job is damaged: {error}; begin in an empty folder") from error
        return found

    def refuse(self, other: JobPlan) -> str:
        """What is not the same in `other`, which is asked for now; empty where nothing is."""
        lines = [f"  {line}" for line in self.recipe.difference(other.recipe)]
        if self.fingerprint != other.fingerprint:
            lines.append(f"  source: {self.source} with {self.length} images -> {other.source} with {other.length}")
        lines += [f"  {line}" for line in version_differences(self.made_with, other.made_with)]
        return "\n".join(lines)


def make_plan(
    recipe: Recipe,
    *,
    source: str,
    fingerprint: str,
    length: int,
    classes: tuple[str, ...],
    groups: list[tuple[str, np.ndarray]],
    left_out: dict[str, int],
    made_with: dict[str, str],
    first_uri: str = "",
) -> JobPlan:
    """A plan of these groups: folder, and ids in their order."""
    groups = [(folder, np.asarray(ids, np.int64)) for folder, ids in groups if len(ids)]
    if not groups:
        raise ConfigError(f"nothing is left to do: {length} images in {source}, left out: {left_out}")
    order = np.concatenate([ids for _, ids in groups])
    sizes = tuple((folder, len(ids)) for folder, ids in groups)
    return JobPlan(recipe, source, fingerprint, length, classes, order, sizes, left_out, made_with, first_uri)


def version_differences(planned: dict[str, str], here: dict[str, str]) -> list[str]:
    """`pillow: 12.0.0 -> 13.0.0`, one for each library that is not the same."""
    return [
        f"{name}: {planned.get(name, 'none')} -> {here.get(name, 'none')}"
        for name in sorted(planned.keys() | here.keys())
        if planned.get(name, "none") != here.get(name, "none")
    ]


def uri_prefixes(planned: str, here: str) -> tuple[str, str]:
    """How addresses begin in the plan and here, from those of one photograph: `photos/` and `/data/photos/`, say.

    What follows is the same in both, from a slash on.
    """
    ours, theirs = planned.split("/"), here.split("/")
    while ours and theirs and ours[-1] == theirs[-1]:
        ours.pop()
        theirs.pop()
    return "/".join([*ours, ""]), "/".join([*theirs, ""])
