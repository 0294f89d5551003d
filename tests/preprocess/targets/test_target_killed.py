"""Killed at any moment, a target holds whole files only, and its records tell the truth."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from fastfeed.preprocess.targets.target import open_target

pytestmark = pytest.mark.slow

# Shards of two files, over and over under the same six names, each time with other bytes: every
# file begins with the hash of the rest of it. One process makes another for each line that it is
# sent: starting again would take a second.
LOOP = """
import hashlib, itertools, json, os, sys
from dataclasses import asdict
from fastfeed.preprocess.targets.target import open_target

def work():
    target = open_target(sys.argv[1])
    for k in itertools.count():
        stem = f"train/shard-{k % 6}"
        attempt = target.attempt()
        for suffix in (".tar", ".idx"):
            file, body = attempt.create(stem + suffix), os.urandom(int.from_bytes(os.urandom(3), "little") // 32 + 1)
            file.write(hashlib.sha256(body).digest())
            for start in range(0, len(body), 50_000):
                file.write(body[start : start + 50_000])
        attempt.commit(lambda parts: (f"{stem}.json", json.dumps([asdict(part) for part in parts]).encode()))
        target.write("__job/state.json", b"%d %d" % (k, k))

for _ in sys.stdin:
    child = os.fork()
    if not child:
        work()
    print(child, flush=True)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def nursery(tmp_path):
    command = [sys.executable, "-c", LOOP, tmp_path / "out"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def test_killed_over_and_over(tmp_path, nursery):
    dice, target, seen = random.Random(0), open_target(tmp_path / "out"), 0
    for _ in range(25):
        nursery.stdin.write("begin\n")
        child = int(nursery.stdout.readline())
        with pytest.raises(subprocess.TimeoutExpired):
            nursery.wait(dice.random() * 0.12)
        os.kill(child, signal.SIGKILL)
        assert int(nursery.stdout.readline()) == signal.SIGKILL
        there = target.files()
        for name in there:
            content = target.read(name) or b""
            if name.endswith((".tar", ".idx")):
                assert content[:32] == hashlib.sha256(content[32:]).digest(), f"{name} is torn"
        records = [name for name in there if name.startswith("train/") and name.endswith(".json")]
        for record in records:
            for part in json.loads(target.read(record) or b""):
                assert there[part["name"]] == part["bytes"]
                assert (
                    hashlib.sha256(target.read(part["name"]) or b"").hexdigest() == part["sha256"]
                )
        if "__job/state.json" in there:
            first, second = (target.read("__job/state.json") or b"").split()
            assert first == second
        seen += len(records)
        assert target.sweep() <= 2
        assert "__tmp" not in os.listdir(tmp_path / "out")
    assert seen > 10


@pytest.mark.parametrize(
    ("moment", "done"),
    [("before the first file", 0), ("after it", 1), ("before the record", 2), ("after it all", 3)],
)
def test_killed_between_the_names(tmp_path, moment, done):
    """The renames of one commit: two files, then the record."""
    code = """
import os, signal, sys
from fastfeed.preprocess.targets.target import open_target
target, replace, left = open_target(sys.argv[1]), os.replace, int(sys.argv[2])
attempt = target.attempt()
for suffix in (".tar", ".idx"):
    attempt.create("s" + suffix).write(b"x" * 1000)

def counted(*args):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(*args)

os.replace = counted
attempt.commit(lambda parts: ("s.json", b"[]"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", code, tmp_path, str(done)], timeout=60, check=False)
    assert run.returncode == -signal.SIGKILL
    target = open_target(tmp_path, writes=False)
    assert (
        list(target.files()) == ["s.tar", "s.idx", "s.json"][:done] or len(target.files()) == done
    )
    assert ("s.json" in target.files()) == (done == 3), moment
    assert set(target.files().values()) <= {1000, 2}
    assert target.sweep() == (done < 3)
    assert "__tmp" not in os.listdir(tmp_path)
