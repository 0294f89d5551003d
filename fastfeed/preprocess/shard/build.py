"""Builds one shard in a worker process: reads, transforms, packs, and commits."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import ConfigError, FastfeedError, TargetError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.plan_ids import read_labels
from fastfeed.preprocess.model.condition import (
    DROPPED,
    UNKNOWN,
    Condition,
    SampleValues,
    known_values,
    parse_condition,
)
from fastfeed.preprocess.model.layout import record_name
from fastfeed.preprocess.model.plan import JobPlan, Shard, relative_uri, uri_prefixes
from fastfeed.preprocess.model.record import (
    BadSample,
    Counts,
    Entry,
    Label,
    ProcessedImage,
    ShardFile,
    ShardRecord,
    content_sum,
    labeled,
    make_entry,
    part_of_sum,
)
from fastfeed.preprocess.model.task import (
    TaskContext,
    to_decode_failure,
)
from fastfeed.preprocess.shard.images import NO_SAMPLE, SampleImages
from fastfeed.preprocess.shard.stored import (
    ContiguousSamples,
    DamagedShard,
    StoredShard,
    stored_shard,
)
from fastfeed.preprocess.shard.user_function import (
    Drop,
    UserColumns,
    UserFunction,
    extended,
    to_sample,
)
from fastfeed.preprocess.shard.versions import check_here
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.writers import ShardWriter, new_writer
from fastfeed.printable import log

# samples of a shard on which the function in `Metadata.extras` fails, before it succeeds on any
_HOPELESS = 32


@dataclass(frozen=True, eq=False)
class ShardTask:
    """Builds the shards of a plan; pieces are shard indexes.

    A shard built before is copied with its edits; a damaged one is built from `input`, if it is given.
    """

    input: Input | None
    target: Target
    plan: JobPlan

    def __getstate__(self) -> dict[str, Any]:
        """State without the parts that each process computes once."""
        return {"input": self.input, "target": self.target, "plan": self.plan}

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """As in Task. OSError; ConfigError if other libraries would write other bytes."""
        shard = self.plan.shards[piece]
        existing = self._existing_record(shard)
        if existing is not None and existing.plan == self.plan.shard_hashes[shard.index]:
            return existing.summary({})
        if existing is not None:
            stored = stored_shard(self.target, self.plan, existing, self._removed_ids)
            if not np.isin(existing.ids, self.plan.edits.ids).any():  # edits of bad images alone
                record = replace(existing, plan=self.plan.shard_hashes[shard.index], bad=stored.bad)
                self.target.write(record.name, record.dump())
                return record.summary({})
            for again in (stored, replace(stored, careful=True)):
                try:
                    return self._build(shard, again, context, poison)
                except DamagedShard as error:
                    problem = error
            log.warning("%s; it is built from the source", problem)
            for name in (existing.name, *(file.name for file in existing.files[1:])):
                self.target.remove(name)  # it may not get them again
        if self.input is None:
            return {"samples": 0, "bad": {}, "bytes_in": 0, "bytes_out": 0, "seconds": {}}
        return self._build(shard, None, context, poison)

    def _build(
        self,
        shard: Shard,
        stored: StoredShard | None,
        context: TaskContext,
        poison: Mapping[int, DecodeFailure],
    ) -> dict[str, Any]:
        """Build a shard from the source, or from the files that it was `stored` in."""
        plan = self.plan
        failed = {i: DecodeFailure("internal", why) for i, why in plan.failed.items()}
        poison = failed | dict(poison)
        seconds = defaultdict[str, float](float)
        attempt = self.target.attempt()
        try:
            writer = new_writer(attempt.create, shard.name, plan)
            builder = _ShardBuilder(self, shard, writer, seconds)
            if stored is None:
                builder.fill(context, poison)
            else:
                builder.copy(stored, context)
            context.begin(NO_SAMPLE)
            started = perf_counter()
            offsets = builder.writer.close()
            records: list[ShardRecord] = []

            def record(files: Sequence[ShardFile]) -> tuple[str, bytes]:
                start = self.start(shard) if stored is None else stored.record.start
                records.append(replace(builder.record(files, offsets), start=start))
                if stored is not None:
                    stored.make_way(files)
                return records[0].name, records[0].dump()

            attempt.commit(record, replaces=stored is not None)
            seconds["commit"] += perf_counter() - started
        except TargetError:  # maybe another run built this shard, completed the job, and swept
            existing = self._existing_record(shard)
            if existing is None or existing.plan != self.plan.shard_hashes[shard.index]:
                raise
            return existing.summary({})
        finally:  # also if the parent process is gone: partial files must be removed
            attempt.abandon()
        return records[0].summary(seconds)

    def alone(self, sample: int, context: TaskContext) -> None:
        """Run one sample and discard the result, as in Task."""
        with self.images.read([sample], context) as blobs:
            for i, blob, _ in blobs:
                image = self.images.make(i, blob, context)
                if self.batch == 1 and isinstance(image, ProcessedImage):
                    label = read_labels(self.planned.source, [i])[0]
                    note = self.planned.notes([i], earlier=True)[0]
                    if not isinstance(note, Failure):
                        list(self.extend([self.entry(i, label, note, image)], context, i))

    def known(self, i: int, label: Label, note: dict[str, Any] | Failure) -> SampleValues:
        """Values that `Limits.where` may name and that are known before the file is read."""
        if self.condition is None or isinstance(note, Failure):
            return UNKNOWN
        has_caption = bool(self.planned.caption)
        return known_values(self.sample_uri(i), label, self.plan.classes, note, has_caption)

    def entry(self, i: int, label: Label, note: dict[str, Any], image: ProcessedImage) -> Entry:
        """The sample of an image in its shard."""
        key = i - self._part_start(i)
        return make_entry(key, image, self.sample_uri(i), label, self.plan.classes, note)

    def start(self, shard: Shard) -> int:
        """The first id of the part that a shard is of: keys count from there."""
        return self._part_start(int(self.plan.order[shard.first]))

    def _part_start(self, i: int) -> int:
        return self._starts[bisect_right(self._starts, i) - 1]

    @property
    def calls_function(self) -> bool:
        """True if samples are passed to the function in `Metadata.extras`."""
        return bool(self.plan.recipe.metadata.extras)

    @property
    def batch(self) -> int:
        """Samples for which the function in `Metadata.extras` is called together."""
        return self.plan.recipe.metadata.extras_batch if self.calls_function else 1

    def extend(
        self, entries: Sequence[Entry], context: TaskContext, first: int
    ) -> Sequence[Entry | Drop | Exception]:
        """Add the results of the function in `Metadata.extras`, or the errors it raises.

        first: the id of the first one.
        """
        if not self.calls_function or not entries:
            return entries
        if self.batch == 1:
            context.begin(first)
        added = self._function([to_sample(entry) for entry in entries])
        context.begin(NO_SAMPLE)
        return [
            extended(entry, more, self.plan.columns) if isinstance(more, UserColumns) else more
            for entry, more in zip(entries, added, strict=True)
        ]

    @cached_property
    def images(self) -> SampleImages:
        """The images of the input's samples."""
        recipe = self.plan.recipe
        return SampleImages(self.planned.source, recipe, self.uri, self.sample_uri)

    @cached_property
    def _removed_ids(self) -> frozenset[int]:
        return frozenset(self.plan.edits.gone.tolist())

    def _existing_record(self, shard: Shard) -> ShardRecord | None:
        """The record of the shard with these or other edits, if it was built before."""
        content = self.target.read(record_name(shard.name))
        try:
            record = ShardRecord.load(content or b"", shard.name)
        except OSError:
            return None
        base = self.plan.shard_hashes[shard.index].partition(".")[0]
        return record if record.index == shard.index and record.base == base else None

    def uri(self, i: int, image: str = "") -> str:
        """The URI as spelled in the plan; bytes that are not UTF-8 are escaped."""
        planned, here = self._prefixes
        uri = self.images.source(image).uri(i)
        return _encodable(planned + uri[len(here) :] if uri.startswith(here) else uri)

    def sample_uri(self, i: int, image: str = "") -> str:
        """The URI in the metadata of a sample, or of another image than its first."""
        if self.plan.recipe.metadata.absolute_uri:
            return self.uri(i, image)
        uri = self.images.source(image).uri(i)
        relative = relative_uri(uri, self.planned.text, getattr(self.planned.source, "root", None))
        return self.uri(i, image) if relative is None else _encodable(relative)

    @cached_property
    def condition(self) -> Condition | None:
        """The condition in `Limits.where`, if there is one."""
        where = self.plan.recipe.limits.where
        return parse_condition(where) if where else None

    @cached_property
    def _function(self) -> UserFunction:
        return UserFunction(self.plan.recipe.metadata.extras)

    @cached_property
    def _prefixes(self) -> tuple[str, str]:
        uri = self.planned.source.uri  # "" for images of other sources
        firsts = [
            (part.first_uri, uri(i)) for i, part in self.plan.parts if i not in self._removed_ids
        ]
        return next((uri_prefixes(*pair) for pair in firsts if all(pair)), ("", ""))

    @cached_property
    def planned(self) -> Input:
        """The input, on a machine with the libraries that the plan was made with. ConfigError."""
        assert self.input is not None, "shards are built from a source"
        check_here(self.plan)  # once per process, before the first shard
        return self.input

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self.plan.parts]


@dataclass(slots=True)
class _ShardBuilder:
    """Collects the samples, bad samples and counts of a shard."""

    task: ShardTask
    shard: Shard
    writer: ShardWriter
    seconds: defaultdict[str, float]  # by stage
    ids: list[int] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)  # of each of them
    bad: list[BadSample] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    # not written yet; what `Limits.where` knows of each
    waiting: list[tuple[int, Entry, ProcessedImage, SampleValues]] = field(default_factory=list)
    dropped: int = 0  # by the function in `Metadata.extras`, or for what is known after it
    failed: list[Exception] = field(default_factory=list)  # of the user's function, the writer

    def fill(self, context: TaskContext, poison: Mapping[int, DecodeFailure]) -> None:
        plan = self.task.plan
        ids = plan.ids(self.shard)
        of_source = read_labels(self.task.planned.source, ids)
        notes = self.task.planned.notes(ids, earlier=True)
        # not labels of an update: a copy of the shard keeps what they do not fit
        known = {
            i: self.task.known(i, label, note)
            for i, label, note in zip(ids.tolist(), of_source, notes, strict=True)
        }
        poison = {**poison, **self.unread(known)}
        rows = zip(ids.tolist(), plan.labels(ids, of_source), notes, strict=True)
        with self.task.images.read([i for i in known if i not in poison], context) as blobs:
            for i, label, note in rows:
                if i in poison:
                    result: ProcessedImage | DecodeFailure | Failure = poison[i]
                else:
                    _, blob, waited = next(blobs)
                    self.seconds["read"] += waited
                    result = self.task.images.make(i, blob, context, known[i])
                    del blob
                context.begin(NO_SAMPLE)  # a slow target must not count against its timeout
                if not isinstance(result, ProcessedImage):
                    self.reject(i, result)
                elif isinstance(note, Failure):
                    self.reject(i, note)
                else:
                    self.add(i, label, note, result, known[i], context)
        self.write(context)
        # it is the function or the format that fails, not an image
        if len(self.failed) > max(len(self.ids) + self.dropped, 1):
            self.give_up()

    def unread(self, known: Mapping[int, SampleValues]) -> dict[int, DecodeFailure]:
        """Samples that need not be read, as what is known of them decides `Limits.where`."""
        failures: dict[int, DecodeFailure] = {}
        condition = self.task.condition
        if condition is None:
            return failures
        for i, values in known.items():
            try:
                failure = condition.failure(values)
            except Exception as error:
                self.failed.append(error)
                failure = to_decode_failure(error)
            if failure is not None:
                failures[i] = failure
        return failures

    def copy(self, stored: StoredShard, context: TaskContext) -> None:
        """Write the samples that are stored, but for what is edited, without decoding."""
        plan = self.task.plan
        started = perf_counter()
        record = stored.record
        parts = dict(zip(record.ids, record.parts_of_sums, strict=False))
        self.bad = list(stored.bad)
        labels = plan.edits.among(np.array(record.ids, np.int64)).by_id
        is_labeled = plan.edits.are_older(record, plan.order[self.shard.first : self.shard.last])
        for piece in stored.pieces(() if is_labeled else labels):
            context.begin(NO_SAMPLE)
            if isinstance(piece, ContiguousSamples):
                self.writer.columns.declare(record.arrays)
                self.writer.copy(piece.data, piece.starts, piece.others)
                self.ids += piece.ids
                self.sums += map(parts.__getitem__, piece.ids)
                continue
            i = record.sample_id(piece)
            label = plan.label(labels[i]) if i in labels else piece.label
            self.writer.add(labeled(piece, label, plan.classes))
            self.ids.append(i)
            self.sums.append(parts.get(i) or part_of_sum(content_sum(piece.meta)))
            if stored.tally is None:
                self.counts.add(Counts.of(piece))
        self.counts = stored.tally or self.counts
        self.seconds["write"] += perf_counter() - started

    def add(
        self,
        i: int,
        label: Label,
        note: Any,
        image: ProcessedImage,
        known: SampleValues,
        context: TaskContext,
    ) -> None:
        for stage, stage_seconds in image.seconds.items():
            self.seconds[stage] += stage_seconds
        try:
            self.waiting.append((i, self.task.entry(i, label, note, image), image, known))
        except Exception as error:
            self.reject(i, to_decode_failure(error))
        if len(self.waiting) >= self.task.batch:
            self.write(context)

    def write(self, context: TaskContext) -> None:
        """Write the samples that wait for the function in `Metadata.extras`, if there is one."""
        started = perf_counter()
        waiting = self.waiting
        self.waiting = []
        first = waiting[0][0] if waiting else NO_SAMPLE
        entries = self.task.extend([entry for _, entry, _, _ in waiting], context, first)
        extended = perf_counter()
        for (i, _, image, known), entry in zip(waiting, entries, strict=True):
            self.write_one(i, entry, image, known)
        self.seconds["extras"] += (extended - started) * self.task.calls_function
        self.seconds["write"] += perf_counter() - extended

    def write_one(
        self, i: int, entry: Entry | Drop | Exception, image: ProcessedImage, known: SampleValues
    ) -> None:
        """Write a sample, or drop it; one that the function or the writer fails on is bad."""
        try:
            if isinstance(entry, Exception):
                raise entry
            if (failure := self.dropped_as(entry, image, known)) is not None:
                self.dropped += 1
                self.reject(i, failure)
                return
            assert isinstance(entry, Entry)
            counts = Counts.of(image)
            self.writer.add(entry)
        except (OSError, FastfeedError):  # of the target, or what no image can change
            raise
        except Exception as error:
            self.failed.append(error)
            if not self.ids:
                self.writer.columns.forget()
            self.reject(i, to_decode_failure(error))
            if len(self.failed) == _HOPELESS and not self.ids:
                self.give_up()
            return
        self.ids.append(i)
        self.sums.append(part_of_sum(content_sum(image.facts)))
        self.counts.add(counts)

    def dropped_as(
        self, entry: Entry | Drop, image: ProcessedImage, known: SampleValues
    ) -> DecodeFailure | None:
        """The failure of a sample that the function or `Limits.where` drops."""
        if isinstance(entry, Drop):
            return DecodeFailure(DROPPED, entry.reason)
        if (condition := self.task.condition) is None:
            return None
        # without a function, a name that this sample has not got is a missing value
        absent = {} if self.task.calls_function else dict.fromkeys(condition.columns)
        facts = {"text": entry.text, **known.facts}
        columns = absent | entry.meta.get("columns", {}) | entry.arrays | {**known.columns}
        names = ("source_height", "source_width", "source_bytes", "format")
        values = SampleValues(facts, columns).with_file(*(image.facts[name] for name in names))
        return condition.failure(values, is_last=True)

    def reject(self, i: int, why: DecodeFailure | Failure) -> None:
        self.bad.append(BadSample(i, self.task.uri(i), why.reason, _encodable(why.detail)))

    def give_up(self) -> None:
        raise ConfigError(to_decode_failure(self.failed[0]).detail) from self.failed[0]

    def record(self, files: Sequence[ShardFile], offsets: list[int]) -> ShardRecord:
        shard = self.shard
        return ShardRecord(
            shard.name,
            shard.index,
            self.task.plan.shard_hashes[shard.index],
            tuple(files),
            tuple(self.ids),
            tuple(offsets),
            tuple(self.bad),
            self.counts,
            "".join(self.sums),
            self.writer.columns.kinds,
        )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
