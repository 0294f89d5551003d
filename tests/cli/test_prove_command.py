"""`fastfeed prove -- python train.py`: what it prints, and what it says of trainers that cannot be
measured.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import typer
from helpers.prove_command import FASTFEED, LONG, TRAINER, refused, run, trainer

from fastfeed.cli.prove import _exit


@pytest.fixture
def prove(tmp_path):
    """Runs the command on a trainer with this body."""
    return lambda body, *options, code=0, **more: run(
        tmp_path, [sys.executable, str(trainer(tmp_path, body))], *options, code=code, **more
    )


@pytest.mark.slow
def test_a_trainer_is_ended_when_its_proof_is_complete(prove, tmp_path):
    done = prove(LONG, "--json", "--html", "proof.html")
    proof = json.loads(done.stdout)
    assert sorted(proof["parts"]) == ["contention", "copy", "preparation"]
    assert proof["rounds"] >= 4
    assert "its weights are meaningless" in done.stderr and "ended by itself" not in done.stderr
    page = (tmp_path / "proof.html").read_text()
    assert "Is it the input" in page and "meaningless" in page


def test_the_report(prove):
    done = prove(LONG)
    for words in (
        "part of step",
        "95 % interval",
        "total",
        "measured with",
        "what if",
        "Arrays, batch 4, 1 thread",
    ):
        assert words in done.stdout
    assert "its samples lie in this process's memory" in " ".join(done.stdout.split())


BAD = {
    "no feed": ("pass", (), "ended without taking a batch from a fastfeed.Feed"),
    "an error before": ("sys.exit(7)", (), "exit code 7 before it took a batch"),
    "an error in the step": (
        "for number, batch in enumerate(feed()):\n    assert number < 30",
        (),
        "exit code 1 after 31 steps, before its proof was complete",
    ),
    "too short": (
        "train = feed()\nfor _, batch in zip(range(5), train): pass",
        (),
        "after 5 steps, while it was still",
    ),
    "too short for rounds": (
        "train = feed()\nfor _, batch in zip(range(60), train): time.sleep(0.02)",
        (),
        "after 60 steps, and a proof of 1 s takes about",
    ),
    "two feeds": (
        "for one, other in zip(feed('a'), feed('b')): time.sleep(0.001)",
        (),
        "two feeds are iterated in turn, and a proof measures one of them",
    ),
    "another name": (
        "list(feed('a'))",
        ("--feed", "train"),
        "no feed is named 'train'; the command iterated a: --feed",
    ),
    "short epochs": (
        "train = feed()\nfor epoch in range(1000):\n    for _, batch in zip(range(7), train): pass",
        (),
        "the trainer ends an epoch after",
    ),
    "saving": (
        "train = feed()\nfor batch in train: train.state()",
        (),
        "exit code 1 after 1 step, before its proof was complete",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "no feed")) for name in BAD]
)
def test_what_cannot_be_measured_is_said(prove, name):
    body, options, words = BAD[name]
    done = prove(body, *options, code=2)
    assert words in " ".join(done.stderr.split())
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fastfeed: ") and "Traceback" not in last


@pytest.mark.slow
def test_a_second_feed_is_left_alone_where_one_is_named(prove):
    body = """
        train, other = feed("train"), feed("other")
        for batch in train:
            next(iter(other), None)
    """
    proof = json.loads(prove(body, "--feed", "train", "--json").stdout)
    assert proof["feed"]["name"] == "train"
    assert "other feeds were iterated and not measured: other" in proof["notes"]


def test_options_are_checked_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    for options, words in (
        (("--ranks", "1,x"), "--ranks must be numbers of processes"),
        (("--ranks", "2", "--html", "a.html"), "leave one of them out"),
        (("--html", "a.txt"), "--html must be a .html"),
        (("--html", "mine.html"), "which fastfeed did not write"),
        (("--fail-on", "idle>3%"), "--fail-on must be a limit such as 'input>5%'"),
    ):
        assert words in refused(*options)


@pytest.mark.slow
def test_a_program_that_cannot_be_run():
    command = [*FASTFEED, "--", "no-such-program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127 and "fastfeed prove -- python train.py" in done.stderr


@pytest.mark.parametrize(
    ("low", "high", "code"), [(0.06, 0.10, 3), (0.01, 0.10, 4), (0.01, 0.05, 0), (-0.2, 0.01, 0)]
)
def test_a_limit_is_judged_by_the_interval(low, high, code):
    try:
        _exit(0.05, low, high)
        found = 0
    except typer.Exit as end:
        found = end.exit_code
    assert found == code


@pytest.mark.slow
def test_ranks(prove):
    done = prove(LONG, "--ranks", "1,2", "--json")
    rows = json.loads(done.stdout)["ranks"]
    assert [row["ranks"] for row in rows] == [1, 2]
    assert rows[0]["real_speed_up"] == rows[0]["synthetic_efficiency"] == 1.0
    assert all(row["real_images_per_second"] > 0 for row in rows)
    assert "efficiency" in prove(LONG, "--ranks", "2").stdout


def test_the_variable_without_its_job(tmp_path):
    program = textwrap.dedent(TRAINER) + "next(iter(feed()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "FASTFEED_PROVE": str(tmp_path)},
    )
    assert "is not the job of a running `fastfeed prove`; unset FASTFEED_PROVE" in done.stderr
