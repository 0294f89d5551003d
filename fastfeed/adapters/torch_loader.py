"""The parts of a `DataLoader` that trainers ask a feed's loader for: data set and samplers.

Trainers skip batches by wrapping the batch sampler and making another `DataLoader` of the same data
set. A feed's batch sampler yields positions, and its data set the batches that are prepared there:
what is skipped is never read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed.session import FeedSession
from fastfeed.printable import printable, warn
from fastfeed.runtime.thread_pool import LockedIterator

_ITERATE = "iterate what feed.to_torch() returned, without a DataLoader: the feed has its threads"


class StepKey(NamedTuple):
    """A batch that a sampler asks for: which of its iterations, epoch, step."""

    walk: int
    epoch: int
    step: int


class EpochPosition:
    """Moves a feed for trainers that count epochs and steps themselves."""

    def __init__(self, session: FeedSession) -> None:
        self._session = session
        self._followed = session.cursor.moves  # by restore or seek, before the last iteration
        self._loaded = -1  # the same count, when the trainer restored the loader

    def begun(self) -> None:
        """Note that an iteration begins at the position to which the user may have moved it."""
        self._followed = self._session.cursor.moves

    def loaded(self) -> None:
        """Note that the position is from the trainer's checkpoint."""
        self._loaded = self._session.cursor.moves

    def move(self, epoch: int, step: int | None = None) -> None:
        """Begin the next iteration here; None keeps a position inside the epoch.

        A loader that a trainer cycles is in a later epoch than the trainer, and keeps its position.

        Raises:
            ConfigError: If the user has moved the feed to another step, or a later epoch.
        """
        cursor = self._session.cursor
        moved = cursor.moves != self._followed
        at_epoch, at_step = cursor.position
        if not moved or epoch > at_epoch:
            cursor.advance(epoch, step or 0)
            return
        if epoch == at_epoch and step in (None, at_step):
            return
        begins = f"epoch {epoch}" if step is None else f"epoch {epoch}, step {step}"
        if step is None and cursor.moves == self._loaded:
            warn(
                f"the trainer begins at {begins} with a loader restored at epoch {at_epoch}, step"
                f" {at_step}, which keeps its position, as one that is cycled within an epoch",
                stacklevel=4,
            )
            return
        raise ConfigError(
            f"the trainer begins at {begins}, but restore() or seek() moved this feed to epoch"
            f" {at_epoch}, step {at_step}; resume the trainer at that position, or let it have"
            f" its own: feed.seek({epoch})"
        )


class RankSampler:
    """Ids of this rank's samples in the next epoch, in order, as a DistributedSampler yields them."""

    def __init__(self, session: FeedSession, position: EpochPosition) -> None:
        self._session = session
        self._position = position

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch; a position restored inside it is kept."""
        self._position.move(epoch)

    @property
    def epoch(self) -> int:
        """Epoch of the next iteration."""
        return self._session.cursor.next_epoch

    @property
    def steps(self) -> int:
        """Steps per epoch, as in the plan."""
        return self._session.plan.steps

    def __iter__(self) -> Iterator[int]:
        plan = self._session.plan
        epoch = self.epoch
        for step in range(plan.steps):
            real = plan.weights(step, epoch) > 0
            yield from plan.ids(epoch, step)[real].tolist()

    def __len__(self) -> int:
        return self._session.plan.own_length


class StepDataset:
    """Batches of a feed by the keys of its batch sampler, for a `DataLoader` around both."""

    def __init__(
        self,
        session: FeedSession,
        position: EpochPosition,
        begin: Callable[[], LockedIterator[Any]],
    ) -> None:
        self._session = session
        self._position = position
        self._begin = begin
        self._batches: LockedIterator[Any] | None = None
        self._next = StepKey(0, 0, 0)  # the only key that may follow

    def __len__(self) -> int:
        """Samples of an epoch over all ranks."""
        return self._session.plan.length

    def __getitems__(self, key: Any) -> Any:
        """The batch at a key; those before the first key of an iteration are not read."""
        if not isinstance(key, StepKey):
            self[key]
        data: Any = sys.modules["torch.utils.data"]
        if data.get_worker_info() is not None:
            raise ConfigError(
                "a feed makes its batches in this process's threads, and a worker of a DataLoader"
                " has none of them; pass num_workers=0"
            )
        walk, epoch, step = key
        if walk != self._next.walk:
            self._position.move(epoch, step)
            self._batches = self._begin()
        elif key != self._next:
            self.end(walk)
            raise ConfigError(
                f"a sampler around this feed's asks for step {step} where {self._next.step} comes"
                " next, as if batches were to be shuffled or dealt out to ranks again, which the"
                f" feed has done; {_ITERATE}"
            )
        self._next = StepKey(walk, epoch, step + 1)
        assert self._batches is not None
        return next(self._batches)

    def end(self, walk: int) -> None:
        """End the iteration of this number, if it is the last that asked for a batch."""
        batches = self._batches
        if batches is not None and walk == self._next.walk:
            self._batches = None
            if self._next.step == self._session.plan.steps:
                next(batches, None)  # as the `for` statement does
            batches.close()

    def __getitem__(self, index: Any) -> NoReturn:
        raise ConfigError(
            f"a feed has no samples by index, got [{printable(repr(index), 80)}]: it has shuffled them and dealt"
            f" them out to ranks already; {_ITERATE}"
        )

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "a feed's data set cannot be sent to workers of a DataLoader; pass num_workers=0"
        )


class StepSampler:
    """Positions of the batches of the next epoch: the keys of a `StepDataset`."""

    def __init__(self, sampler: RankSampler, dataset: StepDataset) -> None:
        self.sampler = sampler
        self._dataset = dataset
        self._walks = 0

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch; a position restored inside it is kept."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[StepKey]:
        self._walks += 1
        walk = self._walks
        epoch = self.sampler.epoch
        try:
            for step in range(len(self)):
                yield StepKey(walk, epoch, step)
        finally:
            self._dataset.end(walk)

    def __len__(self) -> int:
        return self.sampler.steps

    @property
    def batch_size(self) -> NoReturn:
        """Refuse to say: whatever asks wants to deal the batches out to ranks."""
        raise ConfigError(
            "the batches of this feed are those of this rank already, and a second sampler would"
            " leave samples out; pass what feed.to_torch() returned to the trainer as it is,"
            " without accelerate's prepare_data_loader function or a DistributedSampler"
        )


class SecondSampler(ConfigError, AttributeError):
    """An AttributeError, so that `hasattr(loader, "worker_init_fn")` is False."""


def refuse_second_sampler(loader: object) -> NoReturn:
    """Refuse what Ray Train asks for before it puts a DistributedSampler around a data set."""
    raise SecondSampler(
        "what feed.to_torch() returned has this rank's batches already, and prepare_data_loader of"
        " Ray Train would deal them out again; leave it out, and write"
        " feed.to_torch(ray.train.torch.get_device())"
    )


def keep_batch(batch: Any) -> Any:
    """The batch as it is, where a `DataLoader` would collate samples."""
    return batch


def gradient_state() -> Any:
    """Accelerate's record of loaders, for ends of epochs; None if it is not in use.

    Raises:
        MissingExtra: If an `Accelerator` has no such record yet.
    """
    module: Any = sys.modules.get("accelerate.state")
    if not getattr(getattr(module, "AcceleratorState", None), "_shared_state", None):
        return None  # no Accelerator has been made
    state: Any = getattr(module, "GradientState", None)
    if not hasattr(state, "_add_dataloader"):
        version = getattr(sys.modules.get("accelerate"), "__version__", "without a version")
        raise MissingExtra(
            f"Accelerate {version} does not learn from a loader where an epoch ends, so that"
            " accumulated gradients would run into the next one; pip install 'accelerate>=1.1'"
        )
    return state()
