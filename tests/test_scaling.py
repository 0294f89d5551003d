"""Every rule at every size, warm-up as frameworks ask for it, and no silent change of the global
batch.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.scaling import RULES, BatchPlan, plan_batch

batches = st.integers(1, 4096)
rates = st.floats(1e-6, 10)
sizes = st.integers(1, 1024)
growing = st.sampled_from(["linear", "sqrt", "power-2/3"])


def text_of(*args, **more) -> str:
    with pytest.raises(ConfigError) as caught:
        plan_batch(*args, **more)
    return str(caught.value)


@given(batches, rates, sizes, growing)
def test_a_rank_keeps_its_batch_and_lr_grows_by_a_power_of_the_ranks(batch, lr, size, rule):
    plan = plan_batch(batch, lr, size, rule)
    power = {"linear": 1, "sqrt": 0.5, "power-2/3": 2 / 3}[rule]
    assert (plan.local_batch, plan.global_batch, plan.size) == (batch, batch * size, size)
    assert math.isclose(plan.lr, lr * size**power)
    assert plan.warmup_epochs == (5 if size > 1 else 0)


@given(batches, rates, sizes, growing)
def test_rules_keep_their_order(batch, lr, size, rule):
    sqrt, between, linear = (
        plan_batch(batch, lr, size, rule).lr for rule in ("sqrt", "power-2/3", "linear")
    )
    assert lr <= sqrt <= between <= linear


@given(st.integers(1, 512), rates, sizes, batches, growing)
def test_what_counts_is_the_global_batch_however_it_is_split(local, lr, size, base, rule):
    whole = plan_batch(base, lr, 1, rule, local_batch=local * size)
    split = plan_batch(base, lr, size, rule, local_batch=local)
    assert (whole.global_batch, whole.lr) == (split.global_batch, split.lr)
    assert split.warmup_epochs == (
        5 if split.lr > lr else 0
    )  # a rate that does not rise needs no warm-up


@given(batches, rates, sizes)
def test_fixed_global_changes_nothing_or_refuses(batch, lr, size):
    if batch % size == 0:
        plan = plan_batch(batch, lr, size, "fixed-global")
        assert (plan.global_batch, plan.local_batch * size, plan.lr) == (batch, batch, lr)
        assert plan.warmup_steps(100) == 0 and plan.lr_at(0, 100) == lr
    else:
        assert f"must be a multiple of {size} (ranks)" in text_of(batch, lr, size, "fixed-global")


@given(batches, rates, st.integers(2, 1024), growing, st.integers(1, 2000), st.integers(0, 20))
def test_warmup_rises_by_equal_increments(batch, lr, size, rule, steps, epochs):
    plan = plan_batch(batch, lr, size, rule, warmup_epochs=epochs)
    last = epochs * steps
    assert plan.warmup_steps(steps) == last
    assert plan.lr_at(last, steps) == plan.lr_at(last + 7 * steps, steps) == plan.lr
    if last:
        assert plan.lr_at(0, steps) == lr
        assert math.isclose(plan.lr_at(last // 2, steps), lr + (plan.lr - lr) * (last // 2) / last)
    for epoch in (0, 1, epochs, epochs + 3):  # Keras asks once per epoch
        assert math.isclose(plan.at_epoch(epoch, 0.5), plan.lr_at(epoch * steps, steps))


def test_the_example_of_goyal_et_al():
    plan = plan_batch(256, 0.1, 32)
    assert (plan.global_batch, plan.local_batch) == (8192, 256)
    assert math.isclose(plan.lr, 3.2)
    half_epochs = plan_batch(256, 0.1, 32, warmup_epochs=2.5)
    assert half_epochs.warmup_steps(10) == 25
    assert math.isclose(half_epochs.at_epoch(2), 0.1 + 3.1 * 2 / 2.5)


def test_the_world_is_found_or_given(monkeypatch):
    assert plan_batch(32, 0.1).size == 1
    assert plan_batch(32, 0.1, ff.World(1, 4)) == plan_batch(32, 0.1, 4)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert plan_batch(32, 0.1) == plan_batch(32, 0.1, 4)


def test_factor_is_what_lambdalr_multiplies_with():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: make test TORCH=torch==2.13.0"
    )
    plan = plan_batch(32, 0.1, 8, warmup_epochs=2)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=plan.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, plan.factor(3))
    for step in range(9):
        assert math.isclose(optimizer.param_groups[0]["lr"], plan.lr_at(step, 3))
        optimizer.step()
        schedule.step()


def test_plan_reads_aloud():
    assert (
        str(plan_batch(256, 0.1, 8))
        == "global batch 2048 = 8 ranks x 256, learning rate 0.8 (recipe: 256 and 0.1), after 5"
        " epochs of warm-up from 0.1\nlinear: Goyal et al. 2017 (arXiv 1706.02677), section 2.1,"
        " and Krizhevsky 2014 (arXiv 1404.5997): k times the samples per step, k times the"
        " step\nwarm-up: Goyal et al. 2017, section 2.2"
    )
    assert (
        str(plan_batch(256, 0.1, 8, "fixed-global"))
        == "global batch 256 = 8 ranks x 32, learning rate 0.1 (recipe: 256 and 0.1)\nfixed-global:"
        " the recipe's own global batch, so its learning rate holds and no warm-up is needed"
    )
    for quiet in (
        plan_batch(256, 0.1, 32),
        plan_batch(256, 0.1, 64, "sqrt"),
        plan_batch(16384, 0.1, 1),
    ):
        assert "beware" not in str(quiet)
    assert str(plan_batch(256, 0.1, 64)).endswith(
        "beware: 16384 is above 8192, where Goyal et al. saw the linear rule fail on ImageNet; "
        'compare accuracy, or use rule="sqrt"'
    )
    for rule in RULES:
        assert f"\n{rule}: " in str(plan_batch(64, 0.1, 4, rule))


def test_plan_is_a_value():
    plan = plan_batch(32, 0.1, 2)
    assert plan == BatchPlan(32, 64, 0.2, 32, 0.1, "linear", 5.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.lr = 1.0  # pyright: ignore[reportAttributeAccessIssue]


def test_a_feed_with_another_global_batch_is_refused():
    source = ff.Arrays(np.zeros((64, 4, 4, 3), np.uint8))
    world = ff.World(0, 4, 0, 4)
    plan = plan_batch(16, 0.1, world, "fixed-global")
    with ff.Feed(source, [], global_batch=plan.global_batch, world=world, threads=1) as feed:
        plan.check(feed)
        plan.check(feed.plan)
        # resumed on fewer ranks: the same batch
        plan.check(dataclasses.replace(feed.plan, world=ff.World(0, 2)))
    with ff.Feed(
        source, [], batch=16, world=world, threads=1
    ) as feed:  # the recipe's batch, but per rank
        for given_one in (feed, feed.plan):
            with pytest.raises(ConfigError) as caught:
                plan.check(given_one)
            assert (
                str(caught.value)
                == "the feed's global batch must be 16, planned for lr=0.1, got 64; "
                "pass global_batch=16 to Feed (batch counts per rank), or plan again for 64"
            )


@pytest.mark.parametrize(
    ("args", "more", "text"),
    [
        (
            (100, 0.1, 8, "fixed-global"),
            {},
            (
                'base_batch must be a multiple of 8 (ranks) under rule="fixed-global", got 100;'
                " nearest: 96 and 104, each a separate recipe, or another number of ranks"
            ),
        ),
        (
            (6, 0.1, 8, "fixed-global"),
            {},
            (
                'base_batch must be a multiple of 8 (ranks) under rule="fixed-global", got 6;'
                " nearest: 8, each a separate recipe, or another number of ranks"
            ),
        ),
        (
            (64, 0.1, 8, "fixed-global"),
            {"local_batch": 8},
            (
                'local_batch must be left out under rule="fixed-global", got 8; it is base_batch /'
                " ranks"
            ),
        ),
        (
            (64, 0.1, 8, "cubic"),
            {},
            "rule must be one of linear, sqrt, power-2/3, fixed-global, got 'cubic'",
        ),
        ((0, 0.1, 8), {}, "base_batch must be an integer >= 1, got 0"),
        ((64.0, 0.1, 8), {}, "base_batch must be an integer >= 1, got 64.0"),
        (
            (64, 0.1, 0),
            {},
            "world must be an integer >= 1, got 0; pass a World, or the number of processes in all",
        ),
        (
            (64, 0.1, True),
            {},
            (
                "world must be an integer >= 1, got True; pass a World, or the number of processes"
                " in all"
            ),
        ),
        (
            (64, 0.1, "8"),
            {},
            (
                "world must be an integer >= 1, got '8'; pass a World, or the number of processes"
                " in all"
            ),
        ),
        ((64, 0.0, 8), {}, "base_lr must be a finite number > 0, got 0.0"),
        ((64, math.inf, 8), {}, "base_lr must be a finite number > 0, got inf"),
        ((64, "0.1", 8), {}, "base_lr must be a finite number > 0, got '0.1'"),
        ((64, 0.1, 8), {"warmup_epochs": -1}, "warmup_epochs must be a finite number >= 0, got -1"),
        (
            (64, 0.1, 8),
            {"local_batch": 0},
            "local_batch must be an integer >= 1, got 0; samples per rank",
        ),
    ],
)
def test_errors(args, more, text):
    assert text_of(*args, **more) == text


def test_errors_of_schedules():
    plan = plan_batch(64, 0.1, 8)
    for call, text in [
        (
            lambda: plan.lr_at(-1, 10),
            "step must be an integer >= 0, got -1; count steps from 0 over all epochs",
        ),
        (
            lambda: plan.lr_at(3, 0),
            "steps_per_epoch must be an integer >= 1, got 0; pass len(feed)",
        ),
        (lambda: plan.factor(0), "steps_per_epoch must be an integer >= 1, got 0; pass len(feed)"),
        (lambda: plan.at_epoch(-1), "epoch must be an integer >= 0, got -1; count epochs from 0"),
    ]:
        with pytest.raises(ConfigError) as caught:
            call()
        assert str(caught.value) == text
