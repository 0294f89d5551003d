"""The feed on several ranks, stopped and resumed: the same batches."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import environment
from helpers.feeds import feed, joined, numbers
from helpers.photos import folder

from fastfeed.distributed.world import World
from fastfeed.errors import (
    StateError,
)
from fastfeed.ops import LUT, RandomFlip, RandomResizedCrop, Resize
from fastfeed.sources import Arrays, ImageFolder

# -- ranks and resuming


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_same_global_batches(photos, size):
    with feed(photos, global_batch=10) as one:
        alone = [list(one)]
    ranks = []
    for rank in range(size):
        with feed(photos, global_batch=10, world=World(rank, size)) as data:
            ranks.append(list(data))
    assert joined(ranks) == joined(alone)


RANK = """
import sys, hashlib, json
import fastfeed as ff
feed = ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.RandomResizedCrop(16), ff.RandomFlip()], global_batch=6, threads=1)
for batch in feed:
    print(json.dumps([feed.plan.world.rank, batch.ids.tolist(), [hashlib.md5(i).hexdigest() for i in batch.images]]))
"""


def test_two_processes_see_each_sample_once(photos):
    def start(**environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RANK, str(photos.root)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment(**environ)
        )

    def end(process: subprocess.Popen[str]) -> list[list[Any]]:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    started = [
        start(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
        for rank in range(2)
    ]
    one, two = (end(process) for process in started)
    (alone,) = (end(process) for process in [start()])
    assert {row[0] for row in one} == {0} and {row[0] for row in two} == {1}
    assert [[a[1] + b[1], a[2] + b[2]] for a, b in zip(one, two, strict=True)] == [
        row[1:] for row in alone
    ]
    assert sorted(id for row in one + two for id in row[1]) == list(range(30))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("step", [0, 2, 4, 5])
def test_resuming_is_bit_identical(photos, step, size):
    """Stopped at a step on two ranks, resumed at any world size."""
    before, states = [], []
    for rank in range(2):
        with feed(photos, global_batch=6, world=World(rank, 2)) as data:
            list(data)  # epoch 0
            walk = iter(data)
            for _ in range(step):
                next(walk)
            states.append(json.dumps(data.state()))
            before.append([*walk, *data])
    assert len(set(states)) == 1, "every rank saves the same state"
    after = []
    for rank in range(size):
        with feed(photos, global_batch=6, world=World(rank, size)) as data:
            data.restore(json.loads(states[0]))
            first = list(data)
            assert (first[0].epoch, first[0].step) == ((1, step) if step < 5 else (2, 0))
            after.append([*first, *data] if step < 5 else first)
    assert joined(after) == joined(before)


def test_a_state_is_a_few_plain_values(photos):
    with feed(photos, batch=6, seed=9) as data:
        next(iter(data))
        assert data.state() == {
            "epoch": 0,
            "step": 1,
            "length": 30,
            "seed": 9,
            "global_batch": 6,
            "shuffle": "full",
            "tail": "drop",
            "fingerprint": photos.fingerprint,
            "ops": ["RandomResizedCrop(16)", "RandomFlip()", "Normalize.imagenet()"],
            "meaning": 2,
            "on_bad": "substitute, 16 attempts",
        }


def test_other_ops_are_told_and_refused_on_request(photos):
    with feed(photos, [RandomResizedCrop(16), RandomFlip()], batch=6) as data:
        saved = data.state()
    with feed(
        photos, [RandomResizedCrop(16, scale=(0.5, 1.0)), RandomFlip()], batch=6, on_bad="mask"
    ) as other:
        text = (
            r"the ops were RandomResizedCrop\(16\), now RandomResizedCrop\(16, scale=\(0.5,"
            r" 1.0\)\); the policy for "
            "bad samples was 'substitute, 16 attempts', now 'mask'"
        )
        with pytest.warns(RuntimeWarning, match=f"restored at the saved position, but {text}"):
            other.restore(saved)
        with pytest.raises(StateError, match=f"cannot restore: {text}; create the feed as it was"):
            other.restore(saved, strict="ops")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            other.restore(
                {
                    key: value
                    for key, value in saved.items()
                    if key not in ("ops", "meaning", "on_bad")
                }
            )
        with pytest.raises(StateError, match="a saved state has no spte; pass"):
            other.restore(saved | {"spte": 3})
    with feed(photos, [RandomFlip(), RandomResizedCrop(16)], batch=6) as swapped:
        with pytest.warns(
            RuntimeWarning,
            match=r"were RandomResizedCrop\(16\), RandomFlip\(\), now RandomFlip\(\), Ra",
        ):
            swapped.restore(saved)


def test_tables_that_are_printed_alike_are_told_apart(photos):
    low, high = (LUT([min(v, 255 - n) for v in range(256)]) for n in (0, 1))
    with (
        feed(photos, [Resize((8, 8)), low], batch=6) as data,
        feed(photos, [Resize((8, 8)), high], batch=6) as other,
    ):
        with pytest.warns(RuntimeWarning, match=r"the ops were LUT\(.*\.\.\..*\)#\w{8}, now LUT"):
            other.restore(data.state())


def test_other_data_is_not_resumed(photos):
    with (
        feed(photos, batch=5) as data,
        numbers(batch=5) as other,
        pytest.raises(StateError, match="length"),
    ):
        other.restore(data.state())


def test_a_repaired_file_does_not_cost_the_checkpoint(tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 12}))
    with feed(source, batch=4) as data:
        first = list(data)
        saved = data.state()
    source.path(3).write_bytes(source.path(4).read_bytes() + b"\0")
    with feed(ImageFolder(tmp_path), batch=4) as data:
        with pytest.raises(StateError, match=r"data differs .* restore\(state, strict=False\)"):
            data.restore(saved)
        data.restore(saved, strict=False)
        assert next(iter(data)).epoch == 1
    assert len(first) == 3


def test_far_positions_cost_what_near_ones_do():
    images = np.broadcast_to(np.uint8(0), (10**7, 2, 2, 1))
    with feed(Arrays(images), [], batch=4) as data:
        data.seek(10**6, 2_499_999)
        batches = list(data)
    assert [(b.epoch, b.step) for b in batches] == [(10**6, 2_499_999)]
