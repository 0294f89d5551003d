"""The plan of a job: which photographs go into which shard. Made once and written to a file; it never changes."""

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
    """One shard: a slice of the plan's order."""

    index: int
    name: str  # without suffix: "shard-000012", "val/shard-000003", "train/512x768/shard-000000"
    first: int  # in the order
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """What a job will do: the recipe, the source, and the ids of each shard."""

    recipe: Recipe
    source: str  # as the user named it, without storage options, which may hold secrets
    fingerprint: str  # of the source
    length: int  # photographs in the source
    classes: tuple[str, ...]  # class names by label
    order: np.ndarray  # int64, shape (planned,): ids in the source, shard by shard
    groups: tuple[tuple[str, int], ...]  # folder ("" is the target itself) and its number of ids
    left_out: dict[str, int] = field(default_factory=dict)  # photographs left out by the plan, by reason (duplicates)
    made_with: dict[str, str] = field(default_factory=dict)  # library versions that bytes depend on; {}: any
    first_uri: str = ""  # URI of the first photograph: later runs may spell the source's path differently

    def __len__(self) -> int:
        return len(self.order)

    @property
    def shards(self) -> list[Shard]:
        """All shards. Each group starts a new shard, numbered from 0."""
        shards: list[Shard] = []
        start = 0
        for folder, count in self.groups:
            for k, first in enumerate(range(0, count, self.recipe.packing.samples)):
                last = min(first + self.recipe.packing.samples, count)
                name = f"{folder}/shard-{k:06d}" if folder else f"shard-{k:06d}"
                shards.append(Shard(len(shards), name, start + first, start + last))
            start += count
        return shards

    @property
    def hash(self) -> str:
        """Hash of everything that determines the shards' bytes."""
        return digest({**self._header(), "order": digest(self.order.tolist())})

    def _header(self) -> dict[str, Any]:
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
        """Content of the plan's files by name; write PLAN last."""
        order = io.BytesIO()
        np.save(order, self.order)
        about = {"hash": self.hash, "source": self.source, "first_uri": self.first_uri, "left_out": self.left_out}
        header = {**about, **self._header()}
        return {ORDER: order.getvalue(), PLAN: json.dumps(header, indent=1).encode() + b"\n"}

    @classmethod
    def load(cls, plan: bytes, order: bytes, where: str) -> JobPlan:
        """Parse the plan's files. SourceError if they are damaged."""
        try:
            header = json.loads(plan)
            loaded = cls(
                Recipe.of(header["recipe"]), header["source"], header["fingerprint"], header["length"],
                tuple(header["classes"]), np.load(io.BytesIO(order), allow_pickle=False),
                tuple((name, count) for name, count in header["groups"]), header["left_out"], header["made_with"],
                header.get("first_uri", ""),
            )  # fmt: skip
            if header["hash"] != loaded.hash:
                raise ValueError(f"its hash is {loaded.hash}, not {header['hash']}")
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"the plan in {where}/_job is damaged: {error}; start in an empty folder") from error
        return loaded

    def differences(self, other: JobPlan) -> str:
        """How `other`, the plan requested now, differs, one line each; empty if it does not."""
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
    """Make a plan from groups of (folder, ids in order)."""
    groups = [(folder, np.asarray(ids, np.int64)) for folder, ids in groups if len(ids)]
    if not groups:
        raise ConfigError(f"no photographs to process: {length} images in {source}, left out: {left_out}")
    order = np.concatenate([ids for _, ids in groups])
    sizes = tuple((folder, len(ids)) for folder, ids in groups)
    return JobPlan(recipe, source, fingerprint, length, classes, order, sizes, left_out, made_with, first_uri)


def version_differences(planned: dict[str, str], here: dict[str, str]) -> list[str]:
    """`pillow: 12.0.0 -> 13.0.0`, one line for each library whose version differs."""
    return [
        f"{name}: {planned.get(name, 'none')} -> {here.get(name, 'none')}"
        for name in sorted(planned.keys() | here.keys())
        if planned.get(name, "none") != here.get(name, "none")
    ]


def uri_prefixes(planned: str, here: str) -> tuple[str, str]:
    """The prefixes of URIs in the plan and in this run, such as `photos/` and `/data/photos/`.

    Derived from the two URIs of one photograph: the rest, from a slash on, is equal.
    """
    planned_parts, here_parts = planned.split("/"), here.split("/")
    while planned_parts and here_parts and planned_parts[-1] == here_parts[-1]:
        planned_parts.pop()
        here_parts.pop()
    return "/".join([*planned_parts, ""]), "/".join([*here_parts, ""])
