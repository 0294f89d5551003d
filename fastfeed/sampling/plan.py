"""Which rank reads which sample at which step: shuffle -> shard -> batch, by integer arithmetic alone.

An epoch has `length` positions, and its order maps each to a sample. Orders are computed, never stored, so a billion
samples cost no memory, and starting at step one million costs as much as starting at step zero.
Global step s owns positions [s*G, (s+1)*G) and rank r owns its r-th slice of them: the same global batches at every
world size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, StateError
from fastfeed.sampling import MOST_SAMPLES, Blocks, Epoch, Shuffle, Visits, order_of
from fastfeed.sampling.rng import check_seed

__all__ = ["Blocks", "Plan", "Shuffle"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One rank's path through the data.

    `Plan(samples, global_batch)` is for one rank; `Plan.make(samples, batch=256, world=World.detect())` takes the batch
    per rank. `dataclasses.replace(plan, world=...)` keeps the global batch, as resuming at another world size does.
    """

    samples: int  # in the source
    global_batch: int  # samples per step over all ranks
    seed: int = 0
    world: World = field(default_factory=World)
    shuffle: Shuffle = "full"
    tail: Literal["drop", "pad"] = "drop"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ConfigError(f"a plan needs 1 to 2**40 samples, got {self.samples}")
        if self.tail not in ("drop", "pad"):
            raise ConfigError(f'tail must be "drop" or "pad", got {self.tail!r}')
        if not isinstance(self.global_batch, int) or self.global_batch < self.world.size:
            raise ConfigError(
                f"global_batch must be an integer >= {self.world.size} (one sample per rank), got {self.global_batch!r}"
            )
        if self.tail == "drop" and self.global_batch > self.length:
            raise ConfigError(
                f"the global batch must not exceed the data: got {self.global_batch} samples per step and "
                f"{self.length} samples in the {'source' if self.length == self.samples else 'epoch'}; "
                'lower batch, or use tail="pad"'
            )

    @classmethod
    def make(
        cls,
        samples: int,
        *,
        batch: int | None = None,
        global_batch: int | None = None,
        seed: int = 0,
        world: World | None = None,
        shuffle: Shuffle | bool = "full",
        tail: Literal["drop", "pad"] = "drop",
    ) -> Plan:
        """From a batch per rank or a global batch; shuffle also takes True and False."""
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
        return cls(int(samples), total, seed, world, shuffle, tail)

    @property
    def length(self) -> int:
        """Positions per epoch: as many as there are samples, unless the order says otherwise."""
        return order_of(self.shuffle).positions(self.samples)

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
        return self.visits(epoch, step).ids

    def visits(self, epoch: int, step: int) -> Visits:
        """Sample ids of one step on this rank, and which occurrence in the epoch each one is."""
        return self.at(epoch, self._positions(step))

    def at(self, epoch: int, positions: np.ndarray) -> Visits:
        """Samples at these positions of an epoch (int64, counted over all ranks); wraps around at the end."""
        length = self.length
        used = length if self.tail == "pad" else length - length % self.global_batch
        info, order = Epoch(int(epoch), self.samples, used, self.global_batch, int(self.seed)), order_of(self.shuffle)
        return order.visits(positions % (length if order.open else used), info)

    def weights(self, step: int) -> np.ndarray:
        """1 for a sample, 0 for padding: shape (batch,), float32. All ones unless tail is "pad"."""
        first = self.first(step)
        weights = np.ones(self.batch, np.float32)
        weights[max(self.length - first, 0) :] = 0
        return weights

    def first(self, step: int) -> int:
        """The position in an epoch, counted over all ranks, of this rank's first sample of a step."""
        steps = self.steps
        if not 0 <= step < steps:
            raise ConfigError(f"step must be in [0, {steps}), got {step}")
        return int(step) * self.global_batch + self.bounds[0]

    def _positions(self, step: int) -> np.ndarray:
        first = self.first(step)
        return np.arange(first, first + self.batch, dtype=np.int64)

    def state(self, epoch: int, step: int, fingerprint: str) -> dict[str, Any]:
        """The position before (epoch, step) as plain integers and strings, ready for JSON; valid at any world size."""
        return {
            "epoch": int(epoch),
            "step": int(step),
            "length": int(self.samples),
            "seed": int(self.seed),
            "global_batch": self.global_batch,
            "shuffle": str(self.shuffle),
            "tail": self.tail,
            "fingerprint": fingerprint,
        }

    def position(
        self, state: dict[str, Any], fingerprint: str | None, changed: Callable[[str], str] | None = None
    ) -> tuple[int, int]:
        """(epoch, step) of a saved state; StateError names the field that would change the order.

        A fingerprint of None is not compared: the files may have changed, their number may not. `changed` describes how
        a saved fingerprint differs.
        """
        current = self.state(0, 0, fingerprint or "")
        if not isinstance(state, Mapping):
            raise StateError(f"cannot restore from {state!r}: pass what feed.state() or ff.load_state(path) gave")
        missing = [name for name in current if name not in state]
        if missing:
            raise StateError(
                f"a saved state needs {', '.join(current)}; {', '.join(missing)} missing; pass what feed.state() gave"
            )
        for name in ("length", "seed", "global_batch", "shuffle", "tail", "fingerprint"):
            if state[name] != current[name] and not (name == "fingerprint" and fingerprint is None):
                if name == "fingerprint":
                    what = changed(str(state[name])) if changed is not None else ""
                    raise StateError(
                        f"cannot restore: the data differs from what the state was saved with{what and f' ({what})'}; "
                        "start a new run, or call restore(state, strict=False) if names and order are the same"
                    )
                hint = {
                    "length": "samples came or went; start a new run",
                    "global_batch": f"pass global_batch={state[name]} (batch counts per rank)",
                    "shuffle": f"pass shuffle={repr(state[name]) if state[name] in ('full', 'none') else state[name]}",
                }.get(name, f"pass {name}={state[name]!r}")
                raise StateError(
                    f"cannot restore: {name} was {state[name]!r}, this feed has {current[name]!r}, "
                    f"so the order would change; {hint}"
                )
        epoch, step = state["epoch"], state["step"]
        if not (isinstance(epoch, int) and isinstance(step, int) and epoch >= 0 and 0 <= step <= self.steps):
            raise StateError(
                f"cannot restore: step must be in [0, {self.steps}] and epoch >= 0, got {step!r} and {epoch!r}"
            )
        return (epoch + 1, 0) if step == self.steps else (epoch, step)
