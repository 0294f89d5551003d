"""DistributedDataParallel over gloo: weights of one process; killed, and resumed at other numbers
of ranks.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import ranks_at_work as at_work
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("torch")]

BATCH = at_work.UNEVEN_BATCH
STEPS = at_work.SAMPLES // BATCH
Started = list["subprocess.Popen[str]"]


def torchrun(folder: Path, size: int) -> Started:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(size)]
    return [at_work.work("torch_rank.py", folder, launcher=launcher)]


def by_hand(folder: Path, size: int) -> Started:
    """Nothing supervises these ranks."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(at_work.ports(1)[0])}
    place |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return [
        at_work.work("torch_rank.py", folder, RANK=str(r), LOCAL_RANK=str(r), **place)
        for r in range(size)
    ]


def seen(folder: Path) -> list[tuple[tuple[int, int], list[int]]]:
    """What all ranks were given: ((epoch, step), labels)."""
    lines = [
        line
        for file in sorted(folder.glob("seen-*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [(tuple(position), labels) for position, labels in map(json.loads, lines)]


def weights(folder: Path, size: int) -> None:
    """Every rank ended with the weights of a process alone."""
    wanted = at_work.trained(global_batch=BATCH)
    for rank in range(size):
        at_work.same(json.loads((folder / f"weights-{rank}.json").read_text()), wanted)


@pytest.mark.parametrize(
    ("launch", "attempts"),
    [
        (torchrun, [(2, 1, (0, 5)), (1, None, None)]),
        pytest.param(
            torchrun,
            [(2, 1, (0, 5)), (1, 0, (1, 3)), (2, None, None)],
            marks=pytest.mark.nightly,
        ),
        (by_hand, [(2, 1, (0, 5)), (1, None, None)]),
    ],
)
def test_a_killed_rank_ends_the_others_and_the_run_resumes(
    tmp_path, launch: Callable[[Path, int], Started], attempts: list
):
    """Each attempt has another number of ranks, one of which is killed before a step; the last goes
    to the end.
    """
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'fastfeed[torch]'")
    start, counted = (0, 0), Counter()
    for size, rank, position in attempts:
        (tmp_path / "die.json").write_text(json.dumps({"rank": rank, "position": position}))
        for file in tmp_path.glob("seen-*.jsonl"):
            file.unlink()
        ends = at_work.ended(launch(tmp_path, size))
        if position is None:
            assert [code for code, _, _ in ends] == [0] * len(ends), ends
            reached = (at_work.EPOCHS, 0)
        else:
            assert all(code != 0 for code, _, _ in ends), ends
            said = ends[0][2]  # of torchrun, or of the rank that was not killed
            if launch is torchrun:
                assert "Signal 9 (SIGKILL)" in said
            elif size == 2:
                assert (
                    "Connection closed by peer" in said
                    or "Connection reset by peer" in said
                    or "imed out" in said
                ), said
            saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["data"]
            reached = (saved["epoch"], saved["step"])
            assert reached <= position
        counted.update(
            (at, label)
            for at, labels in seen(tmp_path)
            if start <= at < reached
            for label in labels
        )
        start = reached
    batches = {divmod(i, STEPS): ids for i, ids in enumerate(at_work.order(global_batch=BATCH))}
    assert counted == Counter((at, label) for at, ids in batches.items() for label in ids)
    weights(tmp_path, attempts[-1][0])
