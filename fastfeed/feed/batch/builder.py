"""Builds one batch: read, decode, augment, replace bad samples, mix, convert.

Many threads make its rows.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastfeed.backends.base import Backend
from fastfeed.backends.cpu.mixing import mix_labels
from fastfeed.decode.executor import Executor
from fastfeed.faults import Failure, ends_run
from fastfeed.feed.batch.annotations import annotator
from fastfeed.feed.batch.maps import MapRunner
from fastfeed.feed.batch.pending_batch import BatchRows, PendingBatch, RowArrays
from fastfeed.feed.batch.readahead import READ_AHEAD_BYTES, ReadAhead, Ticket
from fastfeed.feed.batch.rows import Branch, BuiltRows, RowMaker, targets
from fastfeed.feed.batch.sample_loader import ReadImages, SampleLoader
from fastfeed.feed.batch.task_sizes import TaskSizes
from fastfeed.feed.batch_sizes import batch_sizes
from fastfeed.feed.config import FeedConfig
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.ops.base import Size
from fastfeed.ops.mix import plan_of_batch
from fastfeed.ops.program.program import Program
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.plan import Plan, StepSampleCache
from fastfeed.sampling.rng import uniform
from fastfeed.sources.base import Optionals


class BatchBuilder:
    """Makes the jobs that build batches."""

    def __init__(
        self,
        config: FeedConfig,
        branches: Sequence[Branch],
        executors: Mapping[str, Executor],  # by image of the sample
        quarantine: Quarantine,
        timeline: Timeline,
        sizes: TaskSizes,
    ) -> None:
        source = config.source
        self.source = source
        self.plan = config.plan
        self._visits = StepSampleCache(config.plan)
        self._optionals = Optionals(source)
        self._weigh = config.weigh
        self.quarantine = quarantine
        self.timeline = timeline
        self.sizes = sizes
        self._outage = config.outage
        self._loader = SampleLoader(config, executors, quarantine, timeline, sizes.max_bytes)
        self._policy = config.policy
        self._use(branches)
        # the builder of batches of these sizes, where these differ
        self.of_sizes: Callable[[tuple[Size, ...]], BatchBuilder] | None = None
        self._maps = MapRunner(self.program, config.policy, timeline)
        mix = self.program.mix
        self._group = mix.op.group if mix is not None else 1

    def _use(self, branches: Sequence[Branch]) -> None:
        """Make batches through the programs of these branches."""
        self.branches = list(branches)
        # of the first branch: it also holds the parts that all branches share
        self.program: Program = self.branches[0].program
        self.backend: Backend = self.branches[0].backend  # those of others are of the same kind
        self._annotator = annotator(self.source, self.program)
        self._rows = RowMaker(
            self.branches, self._annotator, self._loader.failure, self._loader.values
        )

    def with_branches(self, branches: Sequence[Branch]) -> BatchBuilder:
        """A builder of the same batches through other programs."""
        other = copy.copy(self)
        other._use(branches)
        other.of_sizes = None
        return other

    def with_plan(self, plan: Plan) -> BatchBuilder:
        """A builder of the batches of another plan of the same length."""
        other = copy.copy(self)
        other.plan = plan
        other._visits = StepSampleCache(plan)
        return other

    @property
    def encoded_bytes(self) -> int:
        """Upper bound on encoded bytes held, besides one large file per task."""
        ahead = READ_AHEAD_BYTES * len(self._loader.remote)
        return self.sizes.threads * self.sizes.max_bytes + ahead

    def close(self) -> None:
        """End threads that run Python for native ones."""
        self._loader.close()

    def read_ahead(self) -> dict[str, ReadAhead]:
        """Read-aheads for one stream of batches, by name of the image."""
        wait = self._outage.wait
        return {name: ReadAhead(source, wait=wait) for name, source in self._loader.remote.items()}

    def job(
        self,
        epoch: int,
        step: int,
        number: int,
        stop: CancelToken,
        ahead: Mapping[str, ReadAhead],
    ) -> ParallelJob[Batch]:
        """The batch of one step; `number` counts batches for the timeline."""
        if self.of_sizes is not None:
            sizes = batch_sizes(self.program, self.plan, epoch, step)
            builder = self.of_sizes(sizes).with_plan(self.plan)
            return builder.job(epoch, step, number, stop, ahead)
        plan = self.plan
        own_weights = plan.weights(step, epoch)
        rows = BatchRows.around(plan.first(step, epoch), len(own_weights), self._group)
        visits = self._visits(epoch, step) if self._group == 1 else plan.at(epoch, rows.positions)
        weights = np.ones(rows.count, np.float32)
        weights[rows.batch_slice] = own_weights
        here = CancelToken(stop)  # an error in one task ends the others, which may wait for storage
        requested = visits.ids.copy()
        batch = PendingBatch(
            epoch, step, number, here, ahead, rows, visits.ids, visits.keys, weights, requested
        )
        tickets = {name: self._request(batch.ids, reads) for name, reads in ahead.items()}
        allocating = threading.Lock()

        def read(image: str, rows: list[int]) -> list[Any]:
            if image not in ahead:
                return self._loader.sources[image].read(requested[rows].tolist())
            reads = ahead[image]
            taken = tickets[image]
            again = [row for row in rows if row not in taken]  # larger than other images
            taken.update(zip(again, reads.request(requested[again].tolist()), strict=True))
            return [reads.take(taken.pop(row), here.is_set) for row in rows]

        def task(first: int, last: int) -> Callable[[], None]:
            def fill() -> None:
                try:
                    with self.backend.device_context():
                        with allocating:  # queued jobs hold no memory
                            if not batch.out.images:
                                self._allocate(batch)
                        self._make(batch, first, last, read)
                except BaseException:
                    # Ctrl-C as well: the batch's other threads stop; raised again
                    here.set()
                    raise
                finally:
                    self.timeline.progress.leave(number)

            return fill

        def finish() -> Batch:
            for branch in self.branches:  # a GPU's have a stream each
                branch.backend.synchronize()
            for image, reads in ahead.items():
                # they have turned out bad since they were requested
                reads.drop(tickets[image].values())
            return self._finished_without_failures(batch)

        return ParallelJob(
            stop, [task(first, last) for first, last in rows.chunks(self.sizes.rows)], finish
        )

    def _finished_without_failures(self, batch: PendingBatch) -> Batch:
        """The batch, made again without samples whose labels, columns or Maps raise an error."""
        while True:
            try:
                finished = self._finished(batch)
            except Exception as error:  # a source may raise anything
                failed = (
                    []
                    if ends_run(error)
                    else self._failed_alone(batch, batch.ids, self._check_facts, "read")
                )
                if not failed:
                    raise
            else:
                if not self.program.maps:
                    return finished
                finished, failed = self._mapped(finished, batch)
                if not failed:
                    return finished
            batch.unreadable += failed
            late = np.isin(batch.ids, failed) & (batch.ids == batch.requested)
            self.quarantine.count_late(int(late.sum()))
            batch.is_counted = True
            batch.draws = self._draws(batch.epoch, batch.draw_keys)
            for first, last in batch.rows.chunks(self.sizes.rows):
                self._make_again(batch, first, last)

    def _mapped(self, finished: Batch, batch: PendingBatch) -> tuple[Batch, list[int]]:
        """The batch after all Maps; or ids of samples to replace, which `failed` has now."""
        ids = finished.ids.tolist()
        keys = batch.draw_keys[batch.rows.batch_slice]
        numbers = partial(uniform, self.plan.seed, batch.epoch, keys)
        known = [row for row, id in enumerate(ids) if id in batch.failed]
        finished, rows = self._maps(
            finished, numbers, batch.number, known, lambda row: self.source.uri(ids[row])
        )
        bad = {ids[row]: detail for row, detail in rows.items()}
        for id, detail in bad.items():
            batch.failed[id] = Failure(id, self.source.uri(id), "augment", "op_failed", detail)
        return finished, list(bad)

    def _failed_alone(
        self,
        batch: PendingBatch,
        ids: np.ndarray,
        check: Callable[[np.ndarray], object],
        stage: str,
    ) -> list[int]:
        """Check samples one at a time; note and return those that raise for the first time."""
        failed = []
        for id in ids.tolist():
            try:
                if id not in batch.failed:
                    check(np.array([id]))
            except Exception as error:
                if ends_run(error):
                    raise
                batch.failed[id] = self._loader.first.unforeseen(id, error, stage)
                failed.append(id)
        return failed

    def _check_facts(self, ids: np.ndarray) -> None:
        self.source.label(ids)
        self._optionals.weights(ids)
        self._optionals.columns(ids)

    def _finished(self, batch: PendingBatch) -> Batch:
        own = batch.rows.batch_slice
        ids = batch.ids[own]
        weights = batch.weights[own]
        facts = batch.readable_ids
        of_source = self._optionals.weights(facts[own]) if self._weigh else None
        if of_source is not None:
            weights = (weights * of_source).astype(np.float32, copy=False)
        columns = self._loader.columns(batch, facts[own])
        views = tuple(batch.out.images) if self.program.views or self.program.image else ()
        annotations = batch.out.annotations
        labels = self._labels(batch, facts)
        return Batch(
            batch.out.images[0],
            labels,
            weights,
            ids,
            batch.epoch,
            batch.step,
            columns,
            views,
            annotations.objects,
            annotations.masks,
            dict(annotations.transforms),
            image_names=tuple(filter(None, self._loader.sources)),
        )

    def _labels(self, batch: PendingBatch, ids: np.ndarray) -> np.ndarray:
        """Labels as the source has them, or as the program converts them; floats are mixed."""
        labels = targets(self.program, self.source.label(ids), batch.weights)
        if labels.dtype.kind == "f" and batch.mix_plan is not None:
            return mix_labels(labels, batch.rows.members, batch.mix_plan)
        return labels[batch.rows.batch_slice]

    def _request(self, ids: np.ndarray, ahead: ReadAhead) -> dict[int, Ticket]:
        """Begin to read the rows of a batch that are not known to be bad."""
        rows = np.flatnonzero(~self.quarantine.known_bad(ids)).tolist()
        return dict(zip(rows, ahead.request(ids[rows].tolist()), strict=True))

    def _allocate(self, batch: PendingBatch) -> None:
        """Take memory, and draw all random numbers."""
        batch.draws = self._draws(batch.epoch, batch.keys)
        mix = self.program.mix
        if mix is not None:
            seed = self.plan.seed
            slot = mix.slot
            draws = mix.op.draws
            batch.mix_plan = plan_of_batch(
                mix.op,
                lambda keys: uniform(seed, batch.epoch, keys, slot, draws),
                batch.keys[batch.rows.batch_slice],
                batch,
                self.program.augmented.size,
            )
        rows = batch.rows.batch
        annotations = self._annotator.empty(rows, mixed=mix is not None)
        batch.out = RowArrays([branch.take(rows) for branch in self.branches], annotations)

    def _draws(self, epoch: int, keys: np.ndarray) -> list[list[np.ndarray]]:
        """Random numbers of these samples, per branch."""
        seed = self.plan.seed
        return [
            branch.program.draw(lambda slot, n: uniform(seed, epoch, keys, slot, n))
            for branch in self.branches
        ]

    def _make(self, batch: PendingBatch, first: int, last: int, read: ReadImages) -> None:
        """Rows [first, last) of those made."""
        if batch.mix_plan is None:
            self._fill(batch, first, last, batch.out[first:last], read)
            return
        samples = self.branches[0].unmixed.take()[: last - first]
        annotations = self._annotator.empty(last - first)
        masked = self._fill(batch, first, last, RowArrays([samples], annotations), read)
        begin, end = batch.rows.within(first, last)
        if batch.stop.is_set() or begin >= end:
            return
        members = batch.rows.members[begin:end] - first
        mix_plan = batch.mix_plan[begin:end]
        if masked:  # black, and no label to mix in
            unmixed = np.isin(members, masked).any(axis=1)
            mix_plan.how[unmixed] = 0
            mix_plan.shares[unmixed] = 0
            mix_plan.shares[unmixed, 0] = 1
        whole = batch.out[begin:end]

        def mix(rows: slice) -> None:
            plan = (members[rows], mix_plan[rows])
            out = whole[rows]
            self.backend.mix(samples, *plan, out.images[0], batch.stop, batch.number)
            self._annotator.mix(annotations, *plan, out.annotations)

        try:
            mix(slice(0, end - begin))
        except Exception as error:
            own = batch.ids[first:last][members[:, 0]]
            row_of = {id: row for row, id in enumerate(own.tolist())}

            def mix_alone(ids: np.ndarray) -> None:
                row = row_of[int(ids[0])]
                mix(slice(row, row + 1))

            if ends_run(error) or not self._failed_alone(batch, own, mix_alone, "augment"):
                raise
            batch.draws = self._draws(batch.epoch, batch.draw_keys)
            self._make_again(batch, first, last)

    def _make_again(self, batch: PendingBatch, first: int, last: int) -> None:
        """Rows [first, last) once more, of samples that are read again."""

        def read(image: str, rows: list[int]) -> list[Any]:
            return self._loader.loaders[image].read_now(batch.ids[rows].tolist(), batch)

        self._make(batch, first, last, read)

    def _fill(
        self, batch: PendingBatch, first: int, last: int, out: RowArrays, read: ReadImages
    ) -> list[int]:
        """Make these rows; `ids` and `weights` change where samples are replaced or masked.

        Returns masked rows.
        """
        start = first
        masked = []
        while start < last and not batch.stop.is_set():

            def read_rest(image: str, rows: list[int], start: int = start) -> list[Any]:
                return read(image, [start + row for row in rows])

            draws = [[u[start:] for u in draws] for draws in batch.draws]
            rest = out[start - first : last - first]
            made = self._make_rows(batch.ids[start:last], draws, rest, batch, read_rest)
            if batch.stop.is_set():
                break
            self._record(made, batch, scheduled=not batch.is_counted)
            for row in sorted(start + row for row in made.bad):
                if self._policy.action == "mask":
                    batch.weights[row] = 0
                    masked.append(row - first)
                else:
                    own = out[row - first : row - first + 1]
                    batch.ids[row] = self._substitute(row, own, batch)
            start += len(made.ids)
        return masked

    def _make_rows(
        self,
        ids: np.ndarray,
        draws: list[list[np.ndarray]],
        out: RowArrays,
        batch: PendingBatch,
        read: ReadImages,
    ) -> BuiltRows:
        """Make the rows of the first of these samples, as many as fit into memory.

        An unforeseen error, wherever it comes from, costs the sample that raises it: all are made
        again, each alone.
        """
        if not batch.failed or batch.failed.keys().isdisjoint(ids.tolist()):
            try:
                images = self._loader.load(ids, batch, read)  # as many as fit into memory
                samples = next(iter(images.values()))
                stage = "augment" if self.program.decode is None else "decode"
                self.timeline.progress.enter(batch.number, stage)
                self._rows.fill(images, draws, out[: len(samples.ids)], batch)
                return BuiltRows(samples.ids, samples.bad)
            except Exception as error:  # sources, decoders and ops may raise anything
                if ends_run(error):
                    raise
                if len(ids) == 1:
                    batch.failed[int(ids[0])] = self._loader.first.unforeseen(
                        ids[0], error, "decode"
                    )
        if len(ids) == 1:
            self._rows.clear([0], out)
            return BuiltRows(ids, {0: batch.failed[int(ids[0])]})
        bad: dict[int, Failure | None] = {}
        for row in range(len(ids)):
            if batch.stop.is_set():
                break
            own = [[u[row:] for u in draws] for draws in draws]
            made = self._make_row(ids[row : row + 1], own, out[row : row + 1], batch)
            bad.update(dict.fromkeys([row] if made.bad else [], made.bad.get(0)))
        return BuiltRows(ids, bad)

    def _make_row(
        self, id: np.ndarray, draws: list[list[np.ndarray]], out: RowArrays, batch: PendingBatch
    ) -> BuiltRows:
        """Make the row of one sample, int64 (1,), that is read now."""

        def read(image: str, _: list[int]) -> list[Any]:
            return self._loader.loaders[image].read_now(id.tolist(), batch)

        return self._make_rows(id, draws, out, batch, read)

    def _substitute(self, row: int, out: RowArrays, batch: PendingBatch) -> int:
        """Put the first good substitute into a row; its id."""
        plan = self.plan
        id = int(batch.ids[row])
        key = int(batch.keys[row])
        substitutes = plan.substitutes(batch.epoch, id, key, self._policy.attempts)
        down: list[Failure] = []
        for other in substitutes:
            ids = np.array([other])
            made = self._make_row(ids, self._draws(batch.epoch, ids), out, batch)
            if batch.stop.is_set():
                return id
            down += self._record(made, batch, scheduled=False)
            if not made.bad:
                return int(other)
        if down:
            raise self._loader.first.outages.error(down[0])
        self.quarantine.raise_exhausted(id, len(substitutes))
        return id

    def _record(
        self, samples: BuiltRows, batch: PendingBatch, scheduled: bool = True
    ) -> list[Failure]:
        """Count samples; return failures of a storage that is down, which are not listed."""
        self.quarantine.record_good(len(samples.ids) - len(samples.bad), scheduled)
        failures = [failure for failure in samples.bad.values() if failure is not None]
        down = [failure for failure in failures if failure.reason == "outage"]
        if len(samples.bad) > len(down):
            failures = [failure for failure in failures if failure.reason != "outage"]
            known = [
                int(samples.ids[row]) for row, failure in samples.bad.items() if failure is None
            ]
            self.quarantine.record_bad(
                failures, batch.epoch, batch.step, known=known, scheduled=scheduled
            )
        return down
