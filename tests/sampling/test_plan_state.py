"""Positions: saved, restored at another world size, refused with the field that differs."""

from __future__ import annotations

import dataclasses
import json

import pytest
from helpers.plans import least_of, worlds
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, StateError
from fastfeed.sampling import Blocks, MixtureOrder, MixturePart
from fastfeed.sampling.plan import Plan

# -- saving and restoring


@given(worlds(), st.integers(0, 1000), st.data())
def test_state_round_trip_at_another_world_size(plans, epoch, data):
    plan = plans[0]
    step = data.draw(st.integers(0, plan.steps - 1))
    saved = json.loads(json.dumps(plans[-1].state(epoch, step, "abc")))
    for size in (1, min(5, least_of(plan))):
        other = dataclasses.replace(plan, world=World(0, size))
        assert other.position(saved, "abc") == (epoch, step)


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    plan = Plan(10, 3)
    assert plan.position(plan.state(4, plan.steps, "f"), "f") == (5, 0)


SAVED = Plan(100, 8, seed=3).state(2, 5, "abc")
OTHER = {
    "seed": (
        {"seed": 4},
        "cannot restore: seed was 3, this feed has 4, so the order would change; pass seed=3",
    ),
    "global_batch": (
        {"global_batch": 16},
        (
            "cannot restore: global_batch was 8, this feed has 16, so the order would change; "
            "pass global_batch=8 (batch counts per rank)"
        ),
    ),
    "shuffle": (
        {"shuffle": "none"},
        (
            "cannot restore: shuffle was 'full', this feed has 'none', so the order would change;"
            " pass shuffle='full'"
        ),
    ),
    "tail": (
        {"tail": "pad"},
        (
            "cannot restore: tail was 'drop', this feed has 'pad', so the order would change; pass"
            " tail='drop'"
        ),
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_restore_names_the_field_that_differs(name):
    change, text = OTHER[name]
    with pytest.raises(StateError) as error:
        dataclasses.replace(Plan(100, 8, seed=3), **change).position(SAVED, "abc")
    assert str(error.value) == text


def test_restore_over_other_data():
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(SAVED, "xyz")
    assert (
        str(error.value)
        == "cannot restore: the data differs from what the state was saved with; start a new run,"
        " or call restore(state, strict=False) if names and order are the same"
    )


def test_restore_says_how_to_write_blocks():
    saved = Plan(100, 8, seed=3, shuffle=Blocks(4, 2)).state(0, 0, "abc")
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(saved, "abc")
    assert str(error.value).endswith(
        "so the order would change; pass shuffle=Blocks(block=4, window=2, lanes=64)"
    )


@pytest.mark.parametrize("name", SAVED)
def test_restore_names_the_field_that_is_missing(name):
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position({k: v for k, v in SAVED.items() if k != name}, "abc")
    assert (
        str(error.value)
        == "a saved state needs epoch, step, length, seed, global_batch, shuffle, tail,"
        " fingerprint; "
        f"{name} missing; pass what feed.state() gave"
    )


@pytest.mark.parametrize("state", [None, 3, "state.json", [1, 2]], ids=repr)
def test_restore_refuses_what_is_no_state(state):
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(state, "abc")
    assert (
        str(error.value)
        == f"cannot restore from {state!r}: pass what feed.state() or ff.load_state(path) gave"
    )


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"step": 13}, "13 and 2"),
        ({"step": -1}, "-1 and 2"),
        ({"epoch": -1}, "5 and -1"),
        ({"epoch": 1 << 31}, "5 and 2147483648"),
        ({"step": True}, "True and 2"),
    ],
    ids=str,
)
def test_restore_refuses_positions_outside(change, got):
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(SAVED | change, "abc")
    assert (
        str(error.value)
        == f"cannot restore: step must be in [0, 12] and epoch in [0, 2^31), got {got}"
    )


# -- refusals


SHUFFLE = (
    'shuffle must be "full", "none" or an order, as Blocks(), Balanced(), Weighted() and'
    " Repeated(2) are, got"
)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"batch": 0}, "batch must be an integer >= 1, got 0"),
        ({"batch": -4}, "batch must be an integer >= 1, got -4"),
        ({"batch": 2.0}, "batch must be an integer >= 1, got 2.0"),
        ({"batch": True}, "batch must be an integer >= 1, got True"),
        ({"global_batch": 0}, "global_batch must be an integer >= 1, got 0"),
        ({}, "pass either batch (per rank) or global_batch; got batch=None, global_batch=None"),
        (
            {"batch": 4, "global_batch": 8},
            "pass either batch (per rank) or global_batch; got batch=4, global_batch=8",
        ),
        (
            {"batch": 30, "world": World(0, 4)},
            (
                "the global batch must not exceed the data: got 120 samples per step and 100"
                ' samples in the source; lower batch, or use tail="pad"'
            ),
        ),
        (
            {"global_batch": 3, "world": World(0, 4)},
            "global_batch must be an integer >= 4 (one sample per rank), got 3",
        ),
        ({"batch": 4, "shuffle": "yes"}, f"{SHUFFLE} 'yes'"),
        ({"batch": 4, "shuffle": 1000}, f"{SHUFFLE} 1000"),
        (
            {"batch": 4, "shuffle": Blocks},
            f"{SHUFFLE} <class 'fastfeed.sampling.orders.blocks.Blocks'>",
        ),
        (
            {"batch": 30, "shuffle": MixtureOrder((MixturePart(0, 9, 1.0),))},
            (
                "the global batch must not exceed the data: got 30 samples per step and 9 samples"
                ' in the epoch; lower batch, or use tail="pad"'
            ),
        ),
        ({"batch": 4, "tail": "keep"}, 'tail must be "drop" or "pad", got \'keep\''),
        ({"batch": 4, "seed": -1}, "seed must be an integer in [0, 2**64), got -1"),
        ({"batch": 4, "seed": "0"}, "seed must be an integer in [0, 2**64), got '0'"),
    ],
    ids=str,
)
def test_refuses(how, text):
    with pytest.raises(ConfigError) as error:
        Plan.make(100, **how)
    assert str(error.value) == text


@pytest.mark.parametrize("samples", [0, 2**40 + 1])
def test_refuses_no_data_and_more_than_keys_can_hold(samples):
    with pytest.raises(ConfigError) as error:
        Plan.make(samples, batch=1)
    assert str(error.value) == f"a plan needs 1 to 2**40 samples, got {samples}"


@pytest.mark.parametrize("step", [-1, 12])
def test_refuses_steps_outside(step):
    with pytest.raises(ConfigError) as error:
        Plan(100, 8).ids(0, step)
    assert str(error.value) == f"step must be in [0, 12), got {step}"


@pytest.mark.parametrize(("given", "meant"), [(True, "full"), (False, "none")])
def test_shuffle_takes_booleans(given, meant):
    assert Plan.make(10, batch=2, shuffle=given).shuffle == meant
