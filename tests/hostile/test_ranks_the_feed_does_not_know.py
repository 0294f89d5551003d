"""Ranks that a program numbers itself (mp.spawn, jax.distributed.initialize), or elastic Horovod
when hosts come and go: no way to a batch gives them the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.feed.session import FeedSession

WAYS: dict[str, Callable[[ff.Feed], Any]] = {
    "for": lambda feed: next(iter(feed)),
    "batches": lambda feed: next(feed.batches(epoch=2)),
    "placed": lambda feed: next(FeedSession.of(feed).placed(lambda batch: batch.ids)),
    "prefetch_to_device": lambda feed: next(iter(ff.prefetch_to_device(feed, "torch:cpu"))),
    "to_torch": lambda feed: next(iter(feed.to_torch("cpu"))),
}


def feed(world: ff.World | None = None) -> ff.Feed:
    return ff.Feed(
        ff.Arrays(np.zeros((32, 4, 4, 3), np.uint8)), [], batch=4, threads=1, world=world
    )


def horovod(rank: int, size: int) -> Any:
    return types.SimpleNamespace(is_initialized=lambda: True, rank=lambda: rank, size=lambda: size)


@pytest.fixture(params=["torch", "jax", "horovod"])
def second_of_two(request, monkeypatch) -> Iterator[str]:
    """A process that its framework runs as rank 1 of 2, with nothing in the environment."""
    if request.param == "torch":
        dist = pytest.importorskip("torch.distributed", reason="needs torch")
        fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
        dist.init_process_group("fake", store=fake.FakeStore(), rank=1, world_size=2)
        yield "torch.distributed"
        dist.destroy_process_group()
    elif request.param == "horovod":
        monkeypatch.setitem(sys.modules, "horovod.torch", horovod(1, 2))
        yield "Horovod"
    else:
        state = types.SimpleNamespace(client=object(), process_id=1, num_processes=2)
        stub = types.SimpleNamespace(global_state=state)
        monkeypatch.setitem(sys.modules, "jax._src.distributed", stub)  # type: ignore[arg-type]
        yield "JAX"


@pytest.mark.parametrize("way", WAYS)
def test_the_first_batch_is_refused_wherever_it_goes(second_of_two, way):
    if "to" in way:
        pytest.importorskip("torch", reason="needs torch")
    with feed() as data:
        with pytest.raises(ff.errors.ConfigError) as raised:
            WAYS[way](data)
        assert (
            f"rank 0 of 1 (no launcher in the environment), but {second_of_two} runs this process"
            " as 1 of 2" in str(raised.value)
        )
        assert (
            "every process would train on the same samples; pass Feed(world=ff.World(1, 2, "
            in str(raised.value)
        )


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        # one node of two, on which the program starts a process for each GPU
        ({"RANK": "0", "WORLD_SIZE": "4"}, "samples would be left out"),
        ({"SLURM_JOB_ID": "7"}, "every process would train on the same samples"),
    ],
)
def test_what_a_launcher_has_said_of_the_machine_is_no_rank(second_of_two, environ, words):
    with feed(ff.World.detect(environ)) as data, pytest.raises(ff.errors.ConfigError, match=words):
        next(iter(data))


@pytest.mark.parametrize(
    "world", [ff.World(), ff.World(1, 2), ff.World.detect({"RANK": "1", "WORLD_SIZE": "2"})]
)
def test_a_world_that_agrees_or_was_passed_on_purpose_is_believed(second_of_two, world):
    with feed(world) as data:
        assert len(next(iter(data))) == 4


@pytest.mark.parametrize(
    ("now", "fits"), [((1, 3), True), ((1, 2), False), ((2, 3), False), ((0, 1), False)]
)
def test_elastic_horovod_numbers_processes_again(now, fits, monkeypatch):
    """The variables of the process stay those of its start."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    started = {f"HOROVOD_{name}": value for name, value in zip(names, "1313", strict=True)} | {
        "HOROVOD_ELASTIC": "1"
    }
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", horovod(*now))
    with feed(ff.World.detect(started)) as data:
        if fits:
            assert len(next(iter(data))) == 4
            return
        with pytest.raises(ff.errors.ConfigError) as raised:
            next(iter(data))
        text = str(raised.value)
        assert "rank 1 of 3 (HOROVOD_RANK=1 HOROVOD_SIZE=3" in text
        assert f"Horovod runs this process as {now[0]} of {now[1]}: " in text
        assert f"pass Feed(world=ff.World({now[0]}, {now[1]}, local_rank, local_size))" in text
    with feed(ff.World(*now, 0, 1)) as data:
        assert len(next(iter(data))) == 4
