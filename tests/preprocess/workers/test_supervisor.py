"""Worker processes that die, hang and ask for the moon: what is lost is one photograph, and it is
said why.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers.preprocess.deadly import HostileTask, written_results
from helpers.preprocess.waiting import alive

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines.local import LocalEngine
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerDied, WorkerLimits

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fate", "reason"),
    [("segfault", "worker_crash"), ("kill", "oom"), ("exit", "worker_crash"), ("hang", "timeout")],
)
def test_a_sample_that_ends_its_process_is_the_only_one_lost(
    tmp_path: Path, fate: str, reason: str
) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {4: fate}), WorkerLimits(timeout_s=1.0))
    try:
        outcome = supervisor.run_piece(0)
    finally:
        supervisor.close()
    assert outcome.error is None and outcome.summary["samples"] == 10
    assert written_results(tmp_path) == {i: reason if i == 4 else "good" for i in range(10)}
    assert supervisor.deaths == (4 if fate == "kill" else 2), (
        "in its piece, and alone; killed ones are tried more often"
    )


def test_a_sample_that_lives_when_it_is_tried_again_is_innocent(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {4: "kill once", 7: "segfault once"}))
    try:
        assert supervisor.run_piece(0).error is None
    finally:
        supervisor.close()
    assert set(written_results(tmp_path).values()) == {"good"}
    assert supervisor.deaths == 2


def test_a_process_that_is_asked_to_end_blames_no_photograph(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {4: "term once", 7: "term once"}))
    try:
        assert supervisor.run_piece(0).error is None
    finally:
        supervisor.close()
    assert set(written_results(tmp_path).values()) == {"good"}
    assert supervisor.deaths == 2, "none was tried alone"


def test_several_poisonous_samples_in_one_piece(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {0: "exit", 5: "segfault", 9: "kill"}))
    try:
        assert supervisor.run_piece(0).error is None
        assert supervisor.run_piece(1).error is None, "the next piece is none the worse for it"
    finally:
        supervisor.close()
    bad = {0: "worker_crash", 5: "worker_crash", 9: "oom"}
    assert written_results(tmp_path) == {i: bad.get(i, "good") for i in range(20)}


def test_an_error_of_the_piece_comes_back_and_the_process_lives_on(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {3: "raise once", 14: "odd once"}))
    try:
        first = supervisor.run_piece(0)
        assert isinstance(first.error, OSError) and first.error.errno == 28
        second = supervisor.run_piece(1)
        assert isinstance(second.error, RuntimeError) and "_UnpicklableError" in str(
            second.error
        ), "one that does not pickle"
        again = [supervisor.run_piece(0), supervisor.run_piece(1)]
        assert [outcome.error for outcome in again] == [None, None]
        assert again[0].summary["pid"] == again[1].summary["pid"]
    finally:
        supervisor.close()
    assert supervisor.deaths == 0


def test_a_process_that_dies_at_no_sample_is_given_up_after_a_while(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {-1: "exit"}))
    try:
        outcome = supervisor.run_piece(0)
    finally:
        supervisor.close()
    assert isinstance(outcome.error, WorkerDied) and "exit status 3, 3 times" in str(outcome.error)


def test_a_decoder_that_asks_for_the_moon_gets_an_error(tmp_path: Path) -> None:
    supervisor = Supervisor(HostileTask(str(tmp_path), {2: "memory"}), WorkerLimits(memory=1 << 28))
    try:
        assert supervisor.run_piece(0).error is None
    finally:
        supervisor.close()
    assert written_results(tmp_path)[2] == "oom" and supervisor.deaths == 0


def test_a_task_that_does_not_travel_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(HostileTask): ...

    with pytest.raises(
        ConfigError, match=r"does not pickle: .*Local.*; their classes must be defined in a module"
    ):
        next(LocalEngine(1).run(Local(str(tmp_path)), [0]))
    monkeypatch.setattr(sys.modules[__name__], "Local", Local, raising=False)
    Local.__qualname__ = "Local"  # of this module, but not when it is imported
    (outcome,) = LocalEngine(1).run(Local(str(tmp_path)), [0])
    assert isinstance(
        outcome.error, ConfigError
    ) and "cannot load the source or the target: " in str(outcome.error)


def test_room_is_shared_and_what_never_fits_is_told_so(tmp_path: Path) -> None:
    big, limit = 60_000_000, 100_000_000
    fates = dict.fromkeys(range(0, 40, 3), f"need {big}") | {
        5: f"need {limit + 1}",
        11: "kill once",
    }
    engine = LocalEngine(3, WorkerLimits(memory=limit))
    outcomes = [
        outcome
        for outcome in engine.run(HostileTask(str(tmp_path), fates), range(4))
        if outcome.summary
    ]
    assert sorted(outcome.piece for outcome in outcomes) == [0, 1, 2, 3]
    assert written_results(tmp_path) == {i: "oom" if i == 5 else "good" for i in range(40)}


def test_a_process_that_dies_while_it_has_room_gives_it_back(tmp_path: Path) -> None:
    engine = LocalEngine(2, WorkerLimits(memory=100_000_000))
    fates = {4: "roomdie 90000000", 8: "need 90000000", 15: "need 90000000"}
    errors = [outcome.error for outcome in engine.run(HostileTask(str(tmp_path), fates), range(2))]
    assert not any(errors)
    assert written_results(tmp_path) == {i: "oom" if i == 4 else "good" for i in range(20)}


def test_stopping_in_the_middle_leaves_no_process(tmp_path: Path) -> None:
    engine = LocalEngine(2, WorkerLimits(timeout_s=60))
    outcomes = engine.run(HostileTask(str(tmp_path), {25: "hang", 38: "hang"}), range(4))
    done = (outcome.summary for outcome in outcomes if outcome.summary)
    pids = {next(done)["pid"] for _ in range(2)}
    outcomes.close()
    assert not any(alive(pid) for pid in pids)
    waited = {25, 38} & written_results(
        tmp_path
    ).keys()  # after 60 s they would be written as "timeout"
    assert not waited, "those that hang were not waited for"


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from helpers.preprocess.deadly import HostileTask\n"
        "from fastfeed.preprocess.engines.local import LocalEngine\n"
        "for outcome in LocalEngine(2).run(HostileTask(sys.argv[1]), range(10000)):\n"
        "    if outcome.summary: print(outcome.summary['pid'], flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(20)}
        process.send_signal(signal.SIGKILL)
    late = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < late:
        threading.Event().wait(0.05)
    assert not any(map(alive, pids))
