"""Laws of both runners: pieces in a supervised process, and in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from helpers.preprocess.law_task import ENDLESS, FAILS, GREEDY, PLAIN, LawTask

from fastfeed.errors import ConfigError
from fastfeed.preprocess.workers import runner as runners
from fastfeed.preprocess.workers.runner import InProcessRunner, Runner
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerDied, WorkerLimits

RULES = WorkerLimits(memory=1 << 30)


@pytest.fixture(params=[Supervisor, InProcessRunner])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Runner]]:
    started: list[Runner] = []

    def begin(
        task: LawTask | bytes, on_progress: Callable[[int, int], None] | None = None
    ) -> Runner:
        started.append(request.param(task, RULES, on_progress=on_progress))
        return started[-1]

    yield begin
    for runner in started:
        runner.close()


def test_an_error_of_a_piece_is_its_outcome_and_the_next_one_runs(start) -> None:
    runner = start(LawTask())
    error = runner.run_piece(FAILS).error
    assert (
        isinstance(error, FileNotFoundError) and error.errno == 2 and "no such target" in str(error)
    )
    assert runner.run_piece(PLAIN).summary == {"piece": PLAIN}


def test_no_room_for_more_than_the_limit(start) -> None:
    assert start(LawTask()).run_piece(GREEDY).summary == {
        "room": "needs 1125899907 MB, the limit is 1074 MB"
    }


def test_a_task_that_cannot_be_loaded(start) -> None:
    error = start(b"cno_such_module\nTask\n.").run_piece(PLAIN).error
    assert isinstance(error, ConfigError)
    assert "cannot load the source or the target: ModuleNotFoundError" in str(error)
    assert "must be defined in a module that workers can import" in str(error)


def test_closing_ends_a_piece_that_runs(start) -> None:
    begun = threading.Event()
    runner = start(LawTask(), lambda piece, samples: begun.set())
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(runner.run_piece(ENDLESS)))
    thread.start()
    assert begun.wait(60)
    runner.close()
    thread.join(60)
    assert isinstance(outcomes[0].error, WorkerDied) and str(outcomes[0].error) == "closed"
    assert isinstance(runner.run_piece(PLAIN).error, WorkerDied)


def test_progress_is_reported_four_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reports = [100.0], []
    monkeypatch.setattr(runners, "monotonic", lambda: now[0])

    class Timed(LawTask):
        def run(self, piece, context, poison):
            for sample in range(100):
                now[0] += 0.0625
                context.begin(sample)
                context.begin(-1)
            return {"piece": piece}

    runner = InProcessRunner(LawTask(), on_progress=lambda *report: reports.append(report))
    runner._task = Timed()
    assert runner.run_piece(7).summary == {"piece": 7}
    assert reports == [(7, samples) for samples in range(4, 101, 4)]
