"""`fastfeed analyze` on files of several ranks that wait in NCCL's kernels for the slowest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import CliRunner
from helpers.profiler.nccl_files import nccl_run

from fastfeed.cli import app

LATE = 2  # the rank that is slower
STEPS = 24


def late_loader(rank: int, step: int) -> tuple[int, int]:
    return (9_000 if rank == LATE else 200), 10_000


def late_compute(rank: int, step: int) -> tuple[int, int]:
    return 200, 19_000 if rank == LATE else 10_000


def all_starve(rank: int, step: int) -> tuple[int, int]:
    return 9_000, 10_000


def healthy(rank: int, step: int) -> tuple[int, int]:
    return 100, 10_000


def analyzed(files: list[Path]) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["analyze", *map(str, files), "--json"])
    assert done.exit_code in (0, 3), done.output
    return json.loads(done.stdout)


def charged(device: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    """Milliseconds per step by (rank that was waited for, what it was late for)."""
    return {
        (one["culprit"].split(",")[0], one["cause"]): one["ns"] / 1e6 / STEPS
        for one in device["charges"]
    }


@pytest.mark.parametrize("ranks", [2 + 1, 4, 8])
def test_all_ranks_wait_for_the_loader_of_one(tmp_path: Path, ranks: int) -> None:
    """Their loaders are quick: time inside NCCL is that rank's input, and so is the verdict."""
    told = analyzed(nccl_run(tmp_path, ranks, late_loader))
    assert told["verdict"]["word"] in ("starved", "severe"), told["verdict"]["headline"]
    assert told["verdict"]["bound"] == "input"
    for device in told["devices"]:
        if device["rank"] == LATE:
            assert device["comm_wait_ns"] / 1e6 / STEPS < 0.1
            continue
        assert device["input"]["value"] == pytest.approx(9 / 19.3, abs=0.04)
        assert charged(device)[f"rank {LATE}", "input"] == pytest.approx(8.8, abs=0.6)
    late = next(rank for rank in told["ranks"] if rank["label"].startswith(f"rank {LATE},"))
    assert late["blamed_ns"] == max(rank["blamed_ns"] for rank in told["ranks"])


def test_all_ranks_wait_for_the_computation_of_one(tmp_path: Path) -> None:
    """No loader is late, so nothing is said against input, however long NCCL's kernels take."""
    told = analyzed(nccl_run(tmp_path, 4, late_compute))
    assert told["verdict"]["word"] == "not_starved", told["verdict"]["headline"]
    for device in told["devices"]:
        if device["rank"] != LATE:
            found = charged(device)
            assert found[f"rank {LATE}", None] == pytest.approx(9, abs=0.6)
            assert found.get((f"rank {LATE}", "input"), 0) < 0.1


def test_ranks_that_all_starve_are_starved_by_their_own_loaders(tmp_path: Path) -> None:
    told = analyzed(nccl_run(tmp_path, 4, all_starve))
    assert told["verdict"]["word"] in ("starved", "severe") and told["verdict"]["bound"] == "input"
    for device in told["devices"]:
        assert device["comm_wait_ns"] / 1e6 / STEPS < 0.1
        assert device["input"]["value"] == pytest.approx(9 / 19.3, abs=0.04)


def test_healthy_ranks_are_healthy(tmp_path: Path) -> None:
    told = analyzed(nccl_run(tmp_path, 4, healthy))
    assert told["verdict"]["word"] == "not_starved", told["verdict"]["headline"]


def test_the_file_of_one_rank_alone_confirms_nothing(tmp_path: Path) -> None:
    """Without the late one's file, half of the time is in collectives for unknown reasons."""
    files = nccl_run(tmp_path, 4, late_loader)
    alone = analyzed(files[:1])["verdict"]
    assert alone["word"] == "not_starved" and alone["bound"] == "comm"
    assert alone["confidence"] == "likely"
    doubt = (
        "of the window is in collectives, and the traces of 3 other ranks are missing: if one of"
        " them was late"
    )
    assert any(doubt in sentence for sentence in alone["against"])
    late = analyzed(files[LATE : LATE + 1])["verdict"]
    assert late["word"] == "severe", "its own loader is in its own file"
    together = analyzed(files)["verdict"]
    assert not any("are missing" in sentence for sentence in together["against"])


def test_one_healthy_rank_that_hardly_communicates_is_confirmed(tmp_path: Path) -> None:
    alone = analyzed(nccl_run(tmp_path, 4, healthy)[:1])["verdict"]
    assert (alone["word"], alone["confidence"]) == ("not_starved", "confirmed")
