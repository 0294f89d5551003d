"""Shards done by executors: the same files as from processes here, whichever process dies; none is
left behind.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.preprocess.deadly import HostileTask, written_results
from helpers.preprocess.outcomes import photographs, tree
from helpers.preprocess.waiting import alive

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.engines import executor as hosted
from fastfeed.preprocess.engines.executor import ExecutorEngine
from fastfeed.preprocess.job.job import run
from fastfeed.preprocess.model.recipe import Packing, Recipe, Scaling
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

pytestmark = pytest.mark.slow

FATES = {4: "segfault", 21: "memory", 36: "kill"}
EXPECTED = dict.fromkeys(range(40), "good") | {4: "worker_crash", 21: "oom", 36: "oom"}


@contextmanager
def executor(kind: str, workers: int) -> Iterator[Executor]:
    if kind == "threads":
        with ThreadPoolExecutor(workers) as pool:
            yield pool
    else:
        with ProcessPoolExecutor(workers, multiprocessing.get_context(kind)) as pool:
            yield pool


def gone(pids: set[int]) -> bool:
    late = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < late:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.mark.parametrize(("kind", "workers"), [("threads", 4), ("spawn", 2)])
def test_samples_that_kill_are_the_only_ones_lost(tmp_path: Path, kind: str, workers: int) -> None:
    rules = WorkerLimits(memory=1 << 28)
    with executor(kind, workers) as pool:
        outcomes = list(
            ExecutorEngine(pool, rules=rules).run(HostileTask(str(tmp_path), FATES), range(4))
        )
        assert pool.submit(len, "abc").result() == 3, "the executor is none the worse for it"
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert sorted(outcome.piece for outcome in outcomes) == list(range(4))
    assert written_results(tmp_path) == EXPECTED
    assert gone({outcome.summary["pid"] for outcome in outcomes})


def test_every_executor_makes_the_same_files(tmp_path: Path) -> None:
    source = str(photographs(tmp_path / "source", 18, bad=1))
    recipe = Recipe(Scaling(48), packing=Packing(samples=4))
    run(source, tmp_path / "local", recipe, workers=1)
    for kind, workers in (("threads", 4), ("spawn", 2), ("forkserver", 1)):
        with executor(kind, workers) as pool:
            report = run(source, tmp_path / kind, recipe, engine=pool)
        assert report.complete and len(report.bad) == 1
        assert tree(tmp_path / kind) == tree(tmp_path / "local")


class Slow(Executor):
    """Counts what it was given and has not done, and what a task weighs on the way."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.waiting = self.most = self.sent = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.sent += sum(len(arg) for arg in args if isinstance(arg, bytes))
        future = self.pool.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: setattr(self, "waiting", self.waiting - 1))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait)


def test_few_pieces_are_with_the_executor_and_the_task_is_sent_once(tmp_path: Path) -> None:
    heavy = HostileTask(str(tmp_path), dict.fromkeys(range(10_000, 110_000), "none"))
    with Slow() as slow:
        outcomes = list(ExecutorEngine(slow, window=2).run(heavy, range(30)))
    assert len(outcomes) == 30 and slow.most <= 2
    assert slow.sent < 3 * 1_400_000, "to each process once, and not with each of 30 pieces"


class Inline(Executor):
    """Runs at once, so that all that was submitted is done together; keeps the pieces in the order
    of submission.
    """

    def __init__(self) -> None:
        self.pieces: list[int] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.pieces.append(args[-1])
        future = Future[Any]()
        future.set_result(fn(*args, **kwargs))
        return future


def test_pieces_whose_process_did_not_know_the_task_keep_their_order(tmp_path: Path) -> None:
    inline = Inline()
    outcomes = list(ExecutorEngine(inline, window=8).run(HostileTask(str(tmp_path)), range(8)))
    assert inline.pieces == [*range(8), *range(8)], "without the task, and with it"
    assert [outcome.piece for outcome in outcomes] == list(range(8))


def test_closing_ends_what_threads_are_at(tmp_path: Path) -> None:
    fates = dict.fromkeys(range(20, 40), "hang")
    with ThreadPoolExecutor(2) as pool:
        outcomes = ExecutorEngine(pool, rules=WorkerLimits(timeout_s=600)).run(
            HostileTask(str(tmp_path), fates), range(4)
        )
        pids = {next(outcomes).summary["pid"] for _ in range(2)}
        outcomes.close()  # type: ignore[attr-defined]
        assert not any(map(alive, pids))
        assert pool.submit(len, "abc").result() == 3


def test_worker_processes_of_an_executor_that_lives_on_end_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "IDLE_S", 0.2)
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("fork")
    ) as pool:  # which takes the time with it
        (outcome,) = ExecutorEngine(pool).run(HostileTask(str(tmp_path)), [0])
        assert gone({outcome.summary["pid"]})
        (again,) = ExecutorEngine(pool).run(HostileTask(str(tmp_path)), [1])
        assert again.error is None and again.summary["pid"] != outcome.summary["pid"]


def test_a_broken_executor_is_said_for_each_piece_that_is_left(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        outcomes = ExecutorEngine(pool, window=1).run(HostileTask(str(tmp_path)), range(4))
        first = next(outcomes)
        assert first.error is None
        for process in pool._processes.values():
            process.kill()
        rest = list(outcomes)
    assert sorted(outcome.piece for outcome in (first, *rest)) == [0, 1, 2, 3]
    assert all(isinstance(outcome.error, WorkerDied) for outcome in rest)
    assert "BrokenProcessPool" in str(rest[0].error) and "run again with a new executor" in str(
        rest[0].error
    )
    assert gone({first.summary["pid"]})


def test_an_executor_that_was_shut_down_is_said_so(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    (outcome,) = ExecutorEngine(pool).run(HostileTask(str(tmp_path)), [0])
    assert "cannot schedule new futures after shutdown" in str(outcome.error)


def test_errors_of_a_piece_come_back(tmp_path: Path) -> None:
    with executor("forkserver", 1) as pool:
        (full,) = ExecutorEngine(pool).run(HostileTask(str(tmp_path), {3: "raise"}), [0])
    assert isinstance(full.error, OSError) and full.error.errno == 28


def test_a_window_of_nothing_is_refused() -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ConfigError, match="window must be >= 1 pieces, got 0"),
    ):
        ExecutorEngine(pool, 0)


def test_a_process_that_is_given_other_gpus_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runner:
        def __init__(self) -> None:
            self.gpus = os.environ["CUDA_VISIBLE_DEVICES"]
            self.is_closed = False

        def run_piece(self, piece: int) -> Outcome:
            return Outcome(piece, {"gpus": self.gpus})

        def close(self) -> None:
            self.is_closed = True

    runners: list[Runner] = []

    def runner_for(*_: object, **__: object) -> Runner:
        runners.append(Runner())
        return runners[-1]

    monkeypatch.setattr(hosted, "runner_for", runner_for)
    name = hosted.name_run()
    seen = []
    for gpus in ("0", "0", "1", "1", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
        outcome = hosted.run_piece(name, b"task", WorkerLimits(), 0)
        assert outcome is not None
        seen.append(outcome.summary["gpus"])
    hosted.end_run(name)
    assert seen == ["0", "0", "1", "1", "0"] and len(runners) == 3
    assert all(runner.is_closed for runner in runners)
