"""Who reads which sample, when: shuffle -> shard -> batch, by integer arithmetic alone.

An epoch's order is a bijection over [0, length) that is computed, never stored, so a billion samples cost no memory and
starting at step one million costs what starting at step zero does. Global step s owns positions [s*G, (s+1)*G) of that
order and rank r owns its r-th slice of them: the same global batches at every world size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastfeed.draws import check_seed
from fastfeed.errors import ConfigError, StateError
from fastfeed.permute import permute
from fastfeed.world import World

__all__ = ["Blocks", "Plan", "shuffled"]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Shuffle for storage that likes sequential reads: permute blocks, then shuffle inside a window of blocks.

    A reader then touches `window` blocks at a time instead of all of them. A sample can meet any other sample of its
    window in a batch; which blocks share a window changes every epoch.
    """

    block: int = 1024  # samples that lie together in storage (about one shard)
    window: int = 16  # blocks shuffled together

    def __post_init__(self) -> None:
        for name in ("block", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"Blocks.{name} must be an integer >= 1, got {value!r}")


Shuffle = Literal["full", "none"] | Blocks


@dataclass(frozen=True, slots=True)
class Plan:
    """One rank's walk through the data.

    `Plan(length, global_batch)` is for one rank; `Plan.make(length, batch=256, world=World.detect())` takes the batch
    per rank. `dataclasses.replace(plan, world=...)` keeps the global batch: that is what resuming elsewhere means.
    """

    length: int  # samples in the source
    global_batch: int  # samples per step over all ranks
    seed: int = 0
    world: World = field(default_factory=World)
    shuffle: Shuffle = "full"
    tail: Literal["drop", "pad"] = "drop"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.length < 1:
            raise ConfigError(f"a plan needs at least 1 sample, got {self.length}")
        if self.shuffle not in ("full", "none") and not isinstance(self.shuffle, Blocks):
            raise ConfigError(f'shuffle must be "full", "none" or Blocks(...), got {self.shuffle!r}')
        if self.tail not in ("drop", "pad"):
            raise ConfigError(f'tail must be "drop" or "pad", got {self.tail!r}')
        if not isinstance(self.global_batch, int) or self.global_batch < self.world.size:
            raise ConfigError(
                f"global_batch must be an integer >= {self.world.size} (one sample per rank), got {self.global_batch!r}"
            )
        if self.tail == "drop" and self.global_batch > self.length:
            raise ConfigError(
                f"the global batch must not exceed the data: got {self.global_batch} samples per step and "
                f'{self.length} samples in the source; lower batch, or use tail="pad"'
            )

    @classmethod
    def make(
        cls,
        length: int,
        *,
        batch: int | None = None,
        global_batch: int | None = None,
        seed: int = 0,
        world: World | None = None,
        shuffle: Shuffle | bool = "full",
        tail: Literal["drop", "pad"] = "drop",
    ) -> Plan:
        """From a batch per rank or a global batch, whichever was given; shuffle also takes True and False."""
        world = world or World()
        if (batch is None) == (global_batch is None):
            raise ConfigError(
                f"give batch (per rank) or global_batch, one of them; got batch={batch}, global_batch={global_batch}"
            )
        for name, value in (("batch", batch), ("global_batch", global_batch)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise ConfigError(f"{name} must be an integer >= 1, got {value!r}")
        total = int(global_batch if batch is None else batch * world.size)  # type: ignore[arg-type, operator]
        if isinstance(shuffle, bool):
            shuffle = "full" if shuffle else "none"
        return cls(int(length), total, seed, world, shuffle, tail)

    @property
    def steps(self) -> int:
        """Steps per epoch. Equal on every rank, so collectives never hang."""
        if self.tail == "pad":
            return -(-self.length // self.global_batch)
        return self.length // self.global_batch

    @property
    def bounds(self) -> tuple[int, int]:
        """This rank's slice [first, last) of every global batch; slices differ by one when ranks do not divide it."""
        rank, size = self.world.rank, self.world.size
        return self.global_batch * rank // size, self.global_batch * (rank + 1) // size

    @property
    def batch(self) -> int:
        """Samples per step on this rank."""
        first, last = self.bounds
        return last - first

    def ids(self, epoch: int, step: int) -> np.ndarray:
        """Sample ids of one step on this rank: shape (batch,), int64."""
        return shuffled(self._positions(step) % self.length, self.length, self.seed, epoch, self.shuffle)

    def weights(self, step: int) -> np.ndarray:
        """1 for a sample, 0 for padding: shape (batch,), float32. All ones unless tail is "pad"."""
        return (self._positions(step) < self.length).astype(np.float32)

    def _positions(self, step: int) -> np.ndarray:
        if not 0 <= step < self.steps:
            raise ConfigError(f"step must be in [0, {self.steps}), got {step}")
        start, (first, last) = int(step) * self.global_batch, self.bounds
        return np.arange(start + first, start + last, dtype=np.int64)

    def state(self, epoch: int, step: int, fingerprint: str) -> dict[str, Any]:
        """The position before (epoch, step) as plain integers and strings, ready for JSON; valid at any world size."""
        return {
            "epoch": int(epoch),
            "step": int(step),
            "length": int(self.length),
            "seed": int(self.seed),
            "global_batch": self.global_batch,
            "shuffle": str(self.shuffle),
            "tail": self.tail,
            "fingerprint": fingerprint,
        }

    def position(self, state: dict[str, Any], fingerprint: str | None) -> tuple[int, int]:
        """(epoch, step) of a saved state; StateError names the field that would change the order.

        A fingerprint of None is not compared: the files may have changed, their number may not.
        """
        here = self.state(0, 0, fingerprint or "")
        missing = [name for name in here if name not in state]
        if missing:
            raise StateError(
                f"a saved state needs {', '.join(here)}; {', '.join(missing)} missing; pass what feed.state() gave"
            )
        for name in ("length", "seed", "global_batch", "shuffle", "tail", "fingerprint"):
            if state[name] != here[name] and not (name == "fingerprint" and fingerprint is None):
                hint = {
                    "length": "samples came or went; start a new run",
                    "global_batch": f"pass global_batch={state[name]} (batch counts per rank)",
                    "shuffle": f"pass shuffle={state[name] if 'Blocks' in str(state[name]) else repr(state[name])}",
                    "fingerprint": "the files differ from those the state was saved with; start a new run, or call "
                    "restore(state, strict=False) if names and order are the same",
                }.get(name, f"pass {name}={state[name]!r}")
                raise StateError(
                    f"cannot restore: {name} was {state[name]!r}, this feed has {here[name]!r}, "
                    f"so the order {'may' if name == 'fingerprint' else 'would'} change; {hint}"
                )
        epoch, step = state["epoch"], state["step"]
        if not (isinstance(epoch, int) and isinstance(step, int) and epoch >= 0 and 0 <= step <= self.steps):
            raise StateError(
                f"cannot restore: step must be in [0, {self.steps}] and epoch >= 0, got {step!r} and {epoch!r}"
            )
        return (epoch + 1, 0) if step == self.steps else (epoch, step)


def shuffled(positions: np.ndarray, length: int, seed: int, epoch: int, shuffle: Shuffle = "full") -> np.ndarray:
    """The sample ids at these positions of the epoch's order: int64, a bijection over [0, length)."""
    if shuffle == "none":
        return np.asarray(positions, np.int64)
    if isinstance(shuffle, Blocks):
        return _blocks(positions, length, seed, epoch, shuffle)
    return permute(positions, length, (seed, epoch, 0))


def _blocks(positions: np.ndarray, length: int, seed: int, epoch: int, blocks: Blocks) -> np.ndarray:
    """Positions -> window -> shuffled inside it -> slot of the permuted blocks -> id.

    Only the last block may be shorter than the others. Where it lands among the permuted blocks is found by inverting
    the permutation; behind that place all slots are shifted by what it lacks.
    """
    size, count = blocks.block, -(-length // blocks.block)
    lack = count * size - length  # samples the last block is short of
    place = int(permute(np.array([count - 1]), count, (seed, epoch, 1), inverse=True)[0])
    cut = (place + 1) * size - lack  # first position behind the short block

    def start(window: int) -> int:
        slot = min(window * blocks.window, count)
        return slot * size - (lack if slot > place else 0)

    spread = positions + np.where(positions >= cut, lack, 0)
    windows = spread // (size * blocks.window)
    mixed = np.empty(len(positions), np.int64)
    for window in np.unique(windows):
        here = windows == window
        first, last = start(int(window)), start(int(window) + 1)
        mixed[here] = first + permute(positions[here] - first, last - first, (seed, epoch, 2 + int(window)))
    mixed += np.where(mixed >= cut, lack, 0)
    return permute(mixed // size, count, (seed, epoch, 1)) * size + mixed % size
