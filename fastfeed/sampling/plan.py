"""Samples of each rank and step: shuffle -> shard -> batch, by integer arithmetic.

An epoch has `length` positions, and its order maps each to a sample. Orders are computed, never
stored, so a billion samples cost no memory, and starting at step one million costs as much as
starting at step zero. Global step s owns positions [s*G, (s+1)*G) and rank r owns its r-th slice of
them: the same global batches at every world size. Of an incomplete last batch each rank has its
share, and padding after it. Under an order whose batches differ in their number of samples, a step
uses as many of its positions as it has samples, and ranks share these. For ops that mix neighbors,
the rows of every global batch are shuffled before it is cut into slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import check_count, checked
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.sampling import MOST_SAMPLES, Epoch, Order, SampleRefs, Shuffle, resolve_order
from fastfeed.sampling.checkpoint import MOST_EPOCHS, read_position
from fastfeed.sampling.partners import apart
from fastfeed.sampling.permute import permute
from fastfeed.sampling.rng import SLOT_SUBSTITUTE, check_seed, uniform

_STEPS_AT_ONCE = 8  # one call costs as much as for one
_ROWS = 2**33  # in keys, in the place of an epoch number, which is smaller


@checked
@dataclass(frozen=True, slots=True)
class Plan:
    """One rank's path through the data, computed from (seed, epoch, step) alone.

    `dataclasses.replace(plan, world=...)` keeps the global batch, as resuming at another world size
    does.

    Args:
        samples (int): Samples in the source, in [1, 2**40].
        global_batch (int): Samples per step over all ranks, at least one per rank.
        seed (int): Seed of the order, >= 0. Default: 0.
        world (World): Rank and number of ranks. Default: World(), a single rank.
        shuffle (str | Order): "full", "none" or an order such as `Blocks()`. Default: "full".
        tail (str): What happens to samples that do not fill a global batch: "drop" leaves them out
            of this epoch, "pad" divides them evenly among the ranks and fills the batch of each
            with others of weight 0. Default: "drop".
        mixed (bool | int): Shuffle the rows of every global batch, whatever the order: neighbors,
            which MixUp, CutMix and Mosaic combine, are then any two of its samples. A number above
            1 is how many rows are combined: they are then different samples, unless a sample has
            more rows than there are such groups. A feed with such an op sets it. Default: False.

    Raises:
        ConfigError: If a field is out of range, or the global batch exceeds the data under
            tail="drop".

    Example:
        >>> plan = ff.Plan(samples=10, global_batch=4, world=ff.World(rank=0, size=2), shuffle="none")
        >>> plan.steps, plan.batch, plan.ids(epoch=0, step=1), plan.first(step=1), plan.weights(step=1)
        (2, 2, array([4, 5]), 4, array([1., 1.], dtype=float32))
    """

    samples: int
    global_batch: int
    seed: int = 0
    world: World = field(default_factory=World)
    shuffle: Shuffle = "full"
    tail: Literal["drop", "pad"] = "drop"
    mixed: bool | int = False
    length: int = field(init=False, repr=False, compare=False)
    """Samples per epoch: those of the source, unless the order says otherwise."""
    steps: int = field(init=False, repr=False, compare=False)
    """Steps per epoch. Equal on every rank, so collectives never hang."""
    bounds: tuple[int, int] = field(init=False, repr=False, compare=False)
    """Slice [first, last) of every global batch on this rank; slices differ by at most one."""
    batch: int = field(init=False, repr=False, compare=False)
    """Samples per step on this rank; the most of them if steps differ."""
    counts: dict[int, int] = field(init=False, repr=False, compare=False)
    """Steps per epoch by their samples over all ranks; {} if all have the global batch."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ConfigError(
                f"a plan needs 1 to 2**40 samples, got {self.samples}", field="samples"
            )
        if self.tail not in ("drop", "pad"):
            raise ConfigError.of("tail", '"drop" or "pad"', self.tail)
        if not isinstance(self.global_batch, int) or self.global_batch < self.world.size:
            raise ConfigError.of(
                "global_batch",
                f"an integer >= {self.world.size} (one sample per rank)",
                self.global_batch,
            )
        # computed once: a feed asks for them many times per batch
        order = resolve_order(self.shuffle)
        length = order.positions(self.samples)
        run = getattr(order, "run", 1)
        counts = getattr(order, "counts", {})
        if self.global_batch % run or (counts and self.global_batch != run):
            raise ConfigError(
                f"{order} needs a global batch {'of' if counts else 'that is a multiple of'} {run},"
                f" got {self.global_batch} samples per step; pass global_batch={run}"
                f"{'' if counts else ', or a multiple'}",
                field="batch",
            )
        if counts and min(counts) < self.world.size:
            raise ConfigError(
                f"{order} has batches of {min(counts)} samples, fewer than the {self.world.size}"
                f" ranks; raise max_pixels, or use fewer ranks",
                field="shuffle",
            )
        if self.tail == "drop" and self.global_batch > length:
            raise ConfigError(
                f"the global batch must not exceed the data: got {self.global_batch} samples per"
                f" step and {length} samples in the"
                f" {'source' if length == self.samples else 'epoch'}; lower batch, or use"
                ' tail="pad"',
                field="batch",
            )
        rest = length % self.global_batch
        bounds = self._share(self.global_batch)
        steps = length // self.global_batch + (self.tail == "pad" and rest > 0)
        if counts:
            length = sum(count * number for count, number in counts.items())
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "batch", bounds[1] - bounds[0])

    @classmethod
    @checked
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
        mixed: bool | int = False,
    ) -> Plan:
        """A plan from a batch per rank or a global batch.

        Args:
            samples (int): Samples in the source.
            batch (int | None): Samples per step on each rank. Default: None, from `global_batch`.
            global_batch (int | None): Samples per step over all ranks. Default: None, from `batch`.
            seed (int): As for `Plan`. Default: 0.
            world (World | None): Rank and number of ranks. Default: None, a single rank.
            shuffle (str | bool | Order): As for `Plan`; True is "full", False is "none". Default:
                "full".
            tail (str): As for `Plan`. Default: "drop".
            mixed (bool | int): As for `Plan`. Default: False.

        Returns:
            The plan.

        Raises:
            ConfigError: If both or neither of `batch` and `global_batch` are given, or a value is
                out of range.

        Example:
            >>> ff.Plan.make(1000, batch=8, world=ff.World(rank=1, size=4)).global_batch
            32
        """
        world = world or World()
        if (batch is None) == (global_batch is None):
            raise ConfigError(
                f"pass either batch (per rank) or global_batch; got batch={batch},"
                f" global_batch={global_batch}",
                field="batch",
            )
        for name, value in (("batch", batch), ("global_batch", global_batch)):
            if value is not None:
                check_count(name, value, most=None)
        total = int(global_batch if batch is None else batch * world.size)  # type: ignore[arg-type, operator]
        if isinstance(shuffle, bool):
            shuffle = "full" if shuffle else "none"
        return cls(int(samples), total, seed, world, shuffle, tail, mixed)

    def ids(self, epoch: int, step: int) -> np.ndarray:
        """Sample ids of one step on this rank.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch, in [0, steps).

        Returns:
            int64 (batch,), or fewer where steps differ.
        """
        return self.visits(epoch, step).ids

    def visits(self, epoch: int, step: int) -> SampleRefs:
        """Sample ids of one step on this rank, and which occurrence in the epoch each one is.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch, in [0, steps).

        Returns:
            Ids and occurrences, int64 (batch,) each, or fewer where steps differ.
        """
        first = self.first(step, epoch)
        rows = len(self.weights(step, epoch))
        return self.at(epoch, np.arange(first, first + rows, dtype=np.int64))

    def at(self, epoch: int, positions: np.ndarray) -> SampleRefs:
        """Samples at positions of an epoch; wraps around at the end.

        Args:
            epoch (int): Counts from 0.
            positions (np.ndarray): int64, counted over all ranks.

        Returns:
            Sample ids, and for each which of its occurrences in the epoch this is.

        Example:
            >>> ff.Plan(10, 4, shuffle="none").at(0, np.array([0, 7, 12])).ids
            array([0, 7, 2])
        """
        _check_index("epoch", epoch, 1 << 32)
        length = self.steps * self.global_batch if self.counts else self.length
        used = length if self.tail == "pad" else length - length % self.global_batch
        info = Epoch(int(epoch), self.samples, used, self.global_batch, int(self.seed))
        order = resolve_order(self.shuffle)
        last = length if order.open else used
        if self.mixed:
            positions = self._shuffled_rows(positions, info, order, last)
        return order.visits(positions % last, info)

    def substitutes(self, epoch: int, id: int, key: int, attempts: int) -> np.ndarray:
        """Samples to try in place of a bad one, drawn as the order draws samples.

        Args:
            epoch (int): Counts from 0.
            id (int): The bad sample.
            key (int): Its key, from `SampleRefs.keys`.
            attempts (int): Samples to draw.

        Returns:
            Ids, int64 (attempts,); of length 0 if the order groups samples, by class for example,
            and the group has no other sample.

        Example:
            >>> plan = ff.Plan(3, 1)
            >>> plan.substitutes(epoch=0, id=1, key=1, attempts=4).shape
            (4,)
        """
        alike_of = getattr(resolve_order(self.shuffle), "alike", None)
        if alike_of is None:
            positions = substitutes(self.seed, epoch, key, attempts, self.length)
            return self.at(epoch, positions).ids
        alike = alike_of(id)
        others = alike[alike != id]
        if not len(others):
            return others
        return others[substitutes(self.seed, epoch, key, attempts, len(others))]

    def weights(self, step: int, epoch: int | None = None) -> np.ndarray:
        """Weights of a step's samples: 1 for a sample, 0 for padding.

        Args:
            step (int): Within the epoch, in [0, steps).
            epoch (int | None): As for `count`. Default: None.

        Returns:
            float32 (batch,), or fewer where steps differ. All ones unless tail is "pad".
        """
        first, last = self._rank_positions(step, epoch)
        weights = np.zeros(last - first if self.counts else self.batch, np.float32)
        weights[: last - first] = 1
        return weights

    def rows_of(self, count: int) -> int:
        """Samples of this rank in a step, without padding.

        Args:
            count (int): Samples of the step over all ranks.

        Returns:
            Its share of them.

        Example:
            >>> ff.Plan(10, 4, world=ff.World(rank=1, size=4)).rows_of(2)
            1
        """
        first, last = self._share(count)
        return last - first

    def count(self, step: int, epoch: int | None = None) -> int:
        """Samples of a step over all ranks, without padding.

        Gradients that are accumulated over steps of unequal length are those of the mean loss if
        each rank divides the sum of its losses by this, and the ranks' gradients are added up.

        Args:
            step (int): Within the epoch, in [0, steps).
            epoch (int | None): Counts from 0. Needed where steps differ in their number of samples,
                as under `Buckets(max_pixels=...)`. Default: None.

        Returns:
            `global_batch`, what is left for the last step, or what the order says.

        Raises:
            ConfigError: If `step` is out of range, or `epoch` is needed.

        Example:
            >>> plan = ff.Plan(10, 4, tail="pad")
            >>> [plan.count(step) for step in range(plan.steps)]
            [4, 4, 2]
        """
        _check_index("step", step, self.steps)
        first = int(step) * self.global_batch
        if not self.counts:
            return min(self.length - first, self.global_batch)
        if epoch is None:
            raise ConfigError(
                f"epoch must be a number: under {self.shuffle} the samples of a step depend on it",
                field="epoch",
            )
        _check_index("epoch", epoch, 1 << 32)
        return resolve_order(self.shuffle).count_at(first, self.seed, int(epoch))  # type: ignore[attr-defined]

    def first(self, step: int, epoch: int | None = None) -> int:
        """Position in an epoch of this rank's first sample of a step, counted over all ranks.

        Args:
            step (int): Within the epoch, in [0, steps).
            epoch (int | None): As for `count`. Default: None.

        Returns:
            The position.

        Raises:
            ConfigError: If `step` is out of range, or `epoch` is needed.
        """
        return self._rank_positions(step, epoch)[0]

    @property
    def left(self) -> int:
        """Samples of an incomplete last step over all ranks, which is padded; otherwise 0."""
        is_padded = self.tail == "pad" and not self.counts
        return self.length % self.global_batch if is_padded else 0

    @property
    def own_length(self) -> int:
        """Samples per epoch on this rank."""
        steps = self.counts or {self.global_batch: self.length // self.global_batch}
        own = sum(number * self.rows_of(count) for count, number in steps.items())
        return own + self.rows_of(self.left)

    def _rank_positions(self, step: int, epoch: int | None) -> tuple[int, int]:
        """The positions [first, last) of a step on this rank that are not padding."""
        first, last = self._share(self.count(step, epoch))
        begin = int(step) * self.global_batch
        return begin + first, begin + last

    def _share(self, count: int) -> tuple[int, int]:
        """Slice [first, last) of `count` samples of a step: an equal share, or one more."""
        size = self.world.size
        first = self.world.rank
        each, rest = divmod(count, size)
        more = first, first + 1  # earlier ranks that may have one more
        if each == self.global_batch // size:  # those whose batch has room for it
            room = self.global_batch - each * size
            more = room * first // size, room * (first + 1) // size
        return each * first + min(more[0], rest), each * (first + 1) + min(more[1], rest)

    def _shuffled_rows(
        self, positions: np.ndarray, epoch: Epoch, order: Order, last: int
    ) -> np.ndarray:
        """Positions with rows of each step shuffled; padding stays in its rows."""
        steps, rows = np.divmod(positions, self.global_batch)
        shuffled = positions.copy()
        repeats = not getattr(order, "once", False)
        for step in np.unique(steps).tolist():
            first = step * self.global_batch
            real = min(self.global_batch, self.length - first)
            if self.counts:
                real = self.count(step % self.steps, epoch.number)
            here = np.flatnonzero((steps == step) & (rows < real))
            key = (self.seed, _ROWS, epoch.number, step)
            if self.mixed > 1 and repeats:
                whole = first + permute(np.arange(real), real, key)
                ids = order.visits(whole % last, epoch).ids
                apart_rows = apart(ids, int(self.mixed), -first % self.mixed, (*key, 1))
                shuffled[here] = whole[apart_rows[rows[here]]]
            else:
                shuffled[here] = first + permute(rows[here], real, key)
        return shuffled

    def state(self, epoch: int, step: int, fingerprint: str) -> dict[str, Any]:
        """Position before (epoch, step), ready for JSON, valid at any world size.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch, in [0, steps].
            fingerprint (str): The source's fingerprint.

        Returns:
            The state.

        Example:
            >>> plan = ff.Plan(samples=10, global_batch=4)
            >>> plan.position(plan.state(epoch=2, step=1, fingerprint="f00"), fingerprint="f00")
            (2, 1)
        """
        _check_index("epoch", epoch, MOST_EPOCHS)
        _check_index("step", step, self.steps + 1)
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
        self,
        state: dict[str, Any],
        fingerprint: str | None,
        changed: Callable[[str], str] | None = None,
        known: Iterable[str] = (),
    ) -> tuple[int, int]:
        """The position in a saved state.

        Args:
            state (dict[str, Any]): What `state` returned, with any keys in `known`.
            fingerprint (str | None): The source's fingerprint; None is not compared: the files may
                have changed, their number may not.
            changed (Callable[[str], str] | None): Describes how a saved fingerprint differs.
                Default: None.
            known (Iterable[str]): Other keys that the state may have. Default: ().

        Returns:
            (epoch, step).

        Raises:
            StateError: If the state is damaged, or names the field that would change the order.

        Example:
            >>> plan = ff.Plan(samples=10, global_batch=4)
            >>> plan.position(plan.state(epoch=2, step=1, fingerprint="f00"), fingerprint="f00")
            (2, 1)
        """
        return read_position(
            state, self.state(0, 0, fingerprint or ""), self.steps, fingerprint, changed, known
        )


def _check_index(name: str, value: Any, limit: int) -> None:
    """Raise ConfigError unless `value` is an integer in [0, limit)."""
    if not isinstance(value, (int, np.integer)) or not 0 <= value < limit:
        raise ConfigError.of(name, f"in [0, {limit})", value)


class StepSampleCache:
    """Samples of the steps of one plan, computed for eight steps at a time; any thread may ask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        nothing = SampleRefs.once(np.empty((0, 0), np.int64))
        self._block: tuple[int, int, SampleRefs] = (-1, -1, nothing)  # epoch, number in it

    def __call__(self, epoch: int, step: int) -> SampleRefs:
        """Samples of one step, as `plan.at` returns them."""
        number, row = divmod(step, _STEPS_AT_ONCE)
        block = self._block
        if block[:2] != (epoch, number):
            plan = self._plan
            first = number * _STEPS_AT_ONCE
            end = min(first + _STEPS_AT_ONCE, plan.steps)
            firsts = np.array([plan.first(other, epoch) for other in range(first, end)])
            refs = plan.at(epoch, (firsts[:, None] + np.arange(plan.batch)).reshape(-1))
            shape = len(firsts), plan.batch
            refs = SampleRefs(refs.ids.reshape(shape), refs.occurrences.reshape(shape))
            block = self._block = (epoch, number, refs)
        ids, occurrences = block[2]
        rows = len(self._plan.weights(step, epoch)) if self._plan.counts else self._plan.batch
        return SampleRefs(ids[row, :rows].copy(), occurrences[row, :rows])


def substitutes(seed: int, epoch: int, key: int, attempts: int, length: int) -> np.ndarray:
    """Draw indices below `length` of samples to try in place of a bad one: int64, (attempts,)."""
    u = uniform(seed, epoch, np.array([key]), SLOT_SUBSTITUTE, attempts)[0]
    return np.minimum((u * length).astype(np.int64), length - 1)
