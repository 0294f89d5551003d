"""One shard: read its photographs, make each smaller, pack them, commit. What a worker process spends its time with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from fastfeed.decode.base import Bad
from fastfeed.errors import TargetError
from fastfeed.faults import Failure
from fastfeed.preprocess.entry import Entry, ProcessedImage
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.readahead import DEFERRED, known_sizes, read_ahead
from fastfeed.preprocess.pixels.transform import Transformer
from fastfeed.preprocess.plan import JobPlan, Shard, uri_prefixes
from fastfeed.preprocess.record import BadSample, Counts, Record, ShardFile
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.task import MemoryLimitError, TaskContext
from fastfeed.preprocess.versions import check_here
from fastfeed.preprocess.writers import Writer, writer_for

__all__ = ["ShardTask"]

_NOBODY = -1


class _More(BaseException):
    """A photograph needs more room than it was given. Not an Exception: no decoder is to take it for its own."""

    def __init__(self, need: int) -> None:
        self.need = need


@dataclass(frozen=True, slots=True, eq=False)
class ShardTask:
    """The shards of a plan, by index."""

    input: Input
    target: Target
    plan: JobPlan
    _kept: dict[str, Any] = field(default_factory=dict)  # of this process: what is worked out once

    def __getstate__(self) -> tuple[Any, ...]:
        return self.input, self.target, self.plan

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("input", "target", "plan", "_kept"), (*state, {}), strict=True):
            object.__setattr__(self, name, value)

    def run(self, piece: int, watch: TaskContext, poison: Mapping[int, Bad]) -> dict[str, Any]:
        """As in Task. OSError and TargetError where the shard cannot be read or written; ConfigError where this
        process would make other bytes than the one that made the plan."""
        self._check()
        shard = self._shards[piece]
        if (done := self._done(shard)) is not None:
            return _summary(done, {})
        packing, seconds = self.plan.recipe.packing, defaultdict[str, float](float)
        attempt = self.target.attempt()
        try:
            filling = _Filling(self, shard, writer_for(packing)(attempt.create, shard.name, packing), seconds)
            filling.fill(watch, poison)
            watch.begin(_NOBODY)
            begun = perf_counter()
            offsets = filling.writer.close()
            found: list[Record] = []

            def record(parts: Sequence[ShardFile]) -> tuple[str, bytes]:
                found.append(filling.record(parts, offsets))
                return found[0].name, found[0].dump()

            attempt.commit(record)
            seconds["commit"] += perf_counter() - begun
        except TargetError:  # or another run has done this shard, finished the job, and swept
            if (done := self._done(shard)) is None:
                raise
            return _summary(done, {})
        finally:  # also when whoever started this is gone: what is there of it must go
            attempt.abandon()
        return _summary(found[0], seconds)

    def alone(self, sample: int, watch: TaskContext) -> None:
        """As in Task."""
        with self.read_samples([sample], watch) as blobs:
            for i, found, _ in blobs:
                self.make(i, found, watch)

    def make(self, sample: int, found: Any, watch: TaskContext) -> ProcessedImage | Bad:
        """What becomes of a photograph of which `reading` gave this."""
        if found is DEFERRED:
            return self._large(sample, watch)
        if isinstance(found, Failure):
            return Bad(found.reason, found.detail)
        watch.begin(sample)
        return self._transformer(found, watch)

    def _large(self, sample: int, watch: TaskContext) -> ProcessedImage | Bad:
        """With room for its bytes from before they are read; room is asked for once, for all that is needed."""
        source = self.input.source
        need = known_sizes(source, [sample])[0]
        try:
            while True:
                watch.begin(_NOBODY)  # waiting for room is not its fault
                with watch.room(need):
                    (found,) = source.read([sample])
                    if isinstance(found, Failure):
                        return Bad(found.reason, found.detail)
                    watch.begin(sample)
                    try:
                        return self._transformer(found, _Given(watch, need - len(found)))
                    except _More as more:
                        need = len(found) + more.need
                    del found
        except MemoryLimitError as error:
            return Bad("oom", str(error))

    def read_samples(
        self, ids: Sequence[int], watch: TaskContext
    ) -> AbstractContextManager[Iterator[tuple[int, Any, float]]]:
        """As `readahead.reading` does; waiting is nobody's fault."""
        return read_ahead(self.input.source, ids, lambda: watch.begin(_NOBODY))

    def _done(self, shard: Shard) -> Record | None:
        """Its record, where another has done it meanwhile."""
        content = self.target.read(shard.name + ".json")
        if content is None:
            return None
        try:
            record = Record.load(content, shard.name)
        except OSError:
            return None
        return record if record.plan == self.hash and record.index == shard.index else None

    def uri(self, i: int) -> str:
        """As the plan's source would say it, however the source is named now; as JSON and every reader of it can hold
        it: bytes that are no UTF-8 as \\xNN."""
        if "spelled" not in self._kept:
            first = self.plan.first_uri
            self._kept["spelled"] = uri_prefixes(first, self.input.source.uri(0)) if first else ("", "")
        planned, here = self._kept["spelled"]
        uri = self.input.source.uri(i)
        return _text(planned + uri[len(here) :] if uri.startswith(here) else uri)

    def _check(self) -> None:
        """Once in a process."""
        if "checked" not in self._kept:
            check_here(self.plan)
            self._kept["checked"] = True

    @property
    def hash(self) -> str:
        """Of the plan."""
        if "hash" not in self._kept:
            self._kept["hash"] = self.plan.hash
        return self._kept["hash"]

    @property
    def _shards(self) -> list[Shard]:
        if "shards" not in self._kept:
            self._kept["shards"] = self.plan.shards
        return self._kept["shards"]

    @property
    def _transformer(self) -> Transformer:
        if "transformer" not in self._kept:
            self._kept["transformer"] = Transformer(self.plan.recipe)
        return self._kept["transformer"]


@dataclass(frozen=True, slots=True)
class _Given:
    """A Watch with room that is held already."""

    watch: TaskContext
    bytes: int

    def begin(self, sample: int) -> None:
        self.watch.begin(sample)

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        if need > self.bytes:
            raise _More(need)
        yield


@dataclass(slots=True)
class _Filling:
    """What comes together for a shard."""

    task: ShardTask
    shard: Shard
    writer: Writer
    seconds: defaultdict[str, float]  # by stage
    ids: list[int] = field(default_factory=list)
    bad: list[BadSample] = field(default_factory=list)
    tally: Counts = field(default_factory=Counts)

    def fill(self, watch: TaskContext, poison: Mapping[int, Bad]) -> None:
        plan, source = self.task.plan, self.task.input.source
        ids = plan.order[self.shard.first : self.shard.last]
        labels, notes = source.label(ids).tolist(), self.task.input.notes(ids)
        with self.task.read_samples([i for i in ids.tolist() if i not in poison], watch) as blobs:
            for i, label, note in zip(ids.tolist(), labels, notes, strict=True):
                if i in poison:
                    made: ProcessedImage | Bad | Failure = poison[i]
                else:
                    _, found, waited = next(blobs)
                    self.seconds["read"] += waited
                    made = self.task.make(i, found, watch)
                    del found
                watch.begin(_NOBODY)  # however long the target takes for what follows
                made = note if isinstance(note, Failure) and isinstance(made, ProcessedImage) else made
                if isinstance(made, ProcessedImage):
                    self.add(i, int(label), note, made)
                else:
                    self.bad.append(BadSample(i, self.task.uri(i), made.reason, _text(made.detail)))

    def add(self, i: int, label: int, note: Any, made: ProcessedImage) -> None:
        begun = perf_counter()
        plan = self.task.plan
        for stage, took in made.seconds.items():
            self.seconds[stage] += took
        self.ids.append(i)
        self.tally.add(made)
        meta: dict[str, Any] = {"uri": self.task.uri(i), **made.facts}
        if label >= 0:
            meta["label"] = label
            if label < len(plan.classes):
                meta["class"] = plan.classes[label]
        if columns := note.get("columns"):
            meta["columns"] = columns
        known = label if label >= 0 else None
        self.writer.add(
            Entry(f"{i:09d}", made.image, made.extension, made.height, made.width, known, note.get("text"), meta)
        )
        self.seconds["write"] += perf_counter() - begun

    def record(self, parts: Sequence[ShardFile], offsets: list[int]) -> Record:
        shard = self.shard
        return Record(
            shard.name, shard.index, self.task.hash, tuple(parts), tuple(self.ids), tuple(offsets), tuple(self.bad),
            self.tally,
        )  # fmt: skip


def _summary(record: Record, seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "samples": len(record.ids) + len(record.bad),
        "bad": dict(Counter(bad.reason for bad in record.bad)),
        "bytes_in": record.tally.bytes_in,
        "bytes_out": record.bytes,
        "seconds": dict(seconds),
    }


def _text(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
