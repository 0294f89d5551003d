"""Ranks that read tar shards from S3 are killed again and again, and resume each time as another
number of ranks.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path

import pytest
from helpers import killed_rank
from helpers.photos import BROKEN, broken
from helpers.s3 import S3Server
from helpers.shards import samples, tar_of

import fastfeed as ff

pytestmark = pytest.mark.slow

KILLS, SIZES = 10, (3, 2, 1, 4, 6, 3, 2, 5, 1, 3, 2)
POLL_S, PATIENCE_S = 0.01, 60.0


def upload(server: S3Server) -> str:
    """8 shards of 17 samples and 3 of 11; a few samples are broken."""
    for k in range(8):
        members = samples(range(17 * k, 17 * k + 17))
        if k % 3 == 0:
            members[4] = (members[4][0], broken(tuple(BROKEN)[k % len(BROKEN)]))
        server.put(f"bucket/train/a-{k:03d}.tar", tar_of(members))
    for k in range(3):
        server.put(f"bucket/train/b-{k}.tar", tar_of(samples(range(500 + 11 * k, 511 + 11 * k))))
    return "s3://bucket/train"


def lines(folder: Path) -> list[dict]:
    """Batches that an attempt wrote down; a last line may be torn."""
    found = []
    for file in folder.glob("batches-*.jsonl"):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                found.append(json.loads(line))
    return found


def least(folder: Path, size: int) -> dict | None:
    """The position that all ranks of an attempt had reached; None where one had none yet."""
    files = [folder / f"state-{rank}.json" for rank in range(size)]
    if not all(file.exists() for file in files):
        return None
    return min(
        (ff.load_state(file) for file in files), key=lambda state: (state["epoch"], state["step"])
    )


def test_ten_kills_lose_and_repeat_nothing(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_seed: int
):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "home"))
    pattern = upload(s3)
    with killed_rank.feed(ff.World(), pattern, s3.options, None) as whole:
        batches = [batch for epoch in range(killed_rank.EPOCHS) for batch in whole.batches(epoch)]
        want = {(batch.epoch, batch.step): killed_rank.rows(batch) for batch in batches}
        assert len({failure.id for failure in whole.stats().bad}) == 3
    s3.faults(latency_s=0.005, share_503=0.01, seed=fresh_seed)

    rng, start = random.Random(fresh_seed), multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(
        ["helpers.killed_rank", "fastfeed.feed", "s3fs", "fastfeed.backends.cpu.backend"]
    )
    resume: Path | None = None
    got: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    killed = 0
    for attempt, size in enumerate(SIZES):
        folder = tmp_path / f"run{attempt}"
        folder.mkdir()
        args, in_step = (size, str(folder), resume, pattern, s3.options), start.Barrier(size)
        ranks = [
            start.Process(target=killed_rank.run, args=(rank, *args, in_step))
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
        enough = rng.randrange(1, 3 * size) if attempt < KILLS else None
        deadline = time.monotonic() + PATIENCE_S
        while any(rank.is_alive() for rank in ranks) and (
            enough is None or len(lines(folder)) < enough
        ):
            assert time.monotonic() < deadline, "the ranks do not get on"
            ranks[0].join(POLL_S)
        if attempt < KILLS:
            assert any(rank.is_alive() for rank in ranks), (
                "nothing was left to kill: make the run longer"
            )
            killed += 1
        for rank in ranks:
            if rank.is_alive() and rank.pid:
                os.kill(rank.pid, signal.SIGKILL)
            rank.join()
        for line in lines(folder):
            rows = got[line["epoch"], line["step"]]
            for row, sample in enumerate(line["rows"], line["first"]):
                assert rows.setdefault(row, tuple(sample)) == tuple(sample), (
                    "a step gave another sample the second time"
                )
        reached = least(folder, size)
        if reached is not None:
            resume = tmp_path / f"resume{attempt}.json"
            ff.save_state(resume, reached)
    assert killed == KILLS
    assert all((folder / f"done-{rank}").exists() for rank in range(SIZES[-1]))
    union = {at: [rows[row] for row in sorted(rows)] for at, rows in got.items()}
    assert union == want
