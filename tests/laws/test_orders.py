"""What holds for every order: the same on all ranks, for any part of it, and after a restart."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest
from helpers.plans import (
    SIZES,
    epoch_of,
    least_of,
    orders,
    plans,
    positions_of,
    ranks,
    rotated,
    run_of,
    served,
    worlds,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fastfeed.sampling
from fastfeed.distributed.world import World
from fastfeed.errors import StateError
from fastfeed.sampling import (
    NAMES,
    Balanced,
    Blocks,
    Buckets,
    ClassBatches,
    Curriculum,
    CustomOrder,
    MixtureOrder,
    MixturePart,
    Repeated,
    SampleRefs,
    Weighted,
)
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import uniform

EXAMPLES = [
    Balanced(),
    Blocks(),
    Buckets([1], 1),
    ClassBatches(),
    Curriculum([1]),
    CustomOrder(rotated),
    MixtureOrder((MixturePart(0, 1, 1),)),
    Repeated(2),
    Weighted([1]),
    *NAMES.values(),
]


def test_all_orders_are_here():
    found = {
        thing
        for thing in map(fastfeed.sampling.__dict__.get, dir(fastfeed.sampling))
        if isinstance(thing, type)
        and hasattr(thing, "visits")
        and not getattr(thing, "_is_protocol", False)
    }
    assert found == {type(example) for example in EXAMPLES}


@settings(max_examples=40)
@given(worlds(), st.sampled_from(SIZES), st.integers(0, 3))
def test_same_global_batches_at_every_world_size(plans, size, epoch):
    """And all ranks have as many steps, and no turn of a sample comes twice in an epoch, or on two
    ranks.
    """
    plan = plans[0]
    assert {other.steps for other in plans} == {plan.steps}
    assert plan.steps == (
        sum(plan.counts.values())
        if plan.counts
        else -(-plan.length // plan.global_batch)
        if plan.tail == "pad"
        else plan.length // plan.global_batch
    )
    here = epoch_of(plans, epoch)
    keys, weights = (np.concatenate(column) for column in zip(*here, strict=True))
    real = keys[weights == 1]
    assert (
        len(np.unique(real))
        == len(real)
        == sum(other.own_length for other in plans)
        == (plan.length if plan.tail == "pad" or plan.counts else plan.steps * plan.global_batch)
    )
    if least_of(plan) < size:
        size = 1
    for (keys, weights), (others, other_weights) in zip(
        here, epoch_of(ranks(plan, size), epoch), strict=True
    ):
        np.testing.assert_array_equal(keys[weights == 1], others[other_weights == 1])


@given(plans(), st.integers(0, 2**32 - 1), st.data())
def test_no_position_depends_on_others(plan, epoch, data):
    whole = served(plan, epoch)
    length = len(whole.ids)
    for column in whole:
        assert column.dtype == np.int64 and column.shape == (length,)
    assert whole.ids.min() >= 0 and whole.ids.max() < plan.samples
    some = np.array(data.draw(st.lists(st.integers(0, length - 1), max_size=20)), np.int64)
    positions = positions_of(plan, epoch)[some]
    asked = positions.copy()
    for part, column in zip(plan.at(epoch, asked), whole, strict=True):
        np.testing.assert_array_equal(part, column[some])
    np.testing.assert_array_equal(asked, positions)


@given(plans(), st.integers(0, 1000), st.data())
def test_a_run_resumes_in_another_process_at_another_world_size(plan, epoch, data):
    step = data.draw(st.integers(0, plan.steps - 1))
    saved = json.loads(json.dumps(plan.state(epoch, step, "abc")))
    size = data.draw(st.integers(1, min(5, least_of(plan))))
    there: Plan = pickle.loads(pickle.dumps(dataclasses.replace(plan, world=World(size - 1, size))))
    assert there.position(saved, "abc") == (epoch, step)
    first = there.first(step, epoch) - plan.first(step, epoch)
    last = first + len(there.weights(step, epoch))
    np.testing.assert_array_equal(there.ids(epoch, step), plan.ids(epoch, step)[first:last])


@given(orders(50), orders(50))
def test_a_state_knows_its_order(one, other):
    saved = Plan(50, run_of(one), shuffle=one, tail="pad").state(0, 0, "abc")
    plan = Plan(50, run_of(other), shuffle=other, tail="pad")
    if str(one) == str(other):
        assert plan.position(saved, "abc") == (0, 0)
    else:
        with pytest.raises(StateError, match=r"(shuffle|global_batch) was"):
            plan.position(saved, "abc")


@pytest.mark.parametrize("order", EXAMPLES, ids=lambda order: type(order).__name__)
def test_orders_are_frozen_values(order):
    assert pickle.loads(pickle.dumps(order)) == order
    assert hash(order) == hash(pickle.loads(pickle.dumps(order)))
    for field in dataclasses.fields(order):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(order, field.name, None)


# -- occurrences


def test_the_first_turn_draws_what_the_id_draws():
    ids = np.array([0, 5, 2**40 - 1])
    assert SampleRefs.once(ids).keys.tolist() == ids.tolist()


def test_turns_draw_numbers_of_their_own():
    ids, occurrences = np.repeat([0, 1, 2**40 - 1], 5), np.tile([0, 1, 2, 2**23, 2**24 - 1], 3)
    keys = SampleRefs(ids, occurrences).keys
    assert keys.dtype == np.int64
    assert len(np.unique(uniform(3, 1, keys, 0, 2), axis=0)) == 15


@given(plans())
def test_turns_begin_low(plan):
    """At most one more than the sample has come by then: 2**24 occurrences are plenty."""
    ids, occurrences = served(plan)
    times = np.bincount(ids)
    assert (occurrences <= times[ids]).all()
