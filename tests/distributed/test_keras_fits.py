"""`fit` with a feed on every backend of Keras: refused arguments, weights, steps, output."""

import numpy as np
import pytest
import ranks_at_work as at_work
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("keras")]

BACKENDS = [pytest.param("tensorflow", marks=needs("tensorflow"))]
BACKENDS += [
    pytest.param(name, marks=[needs(name), pytest.mark.nightly]) for name in ("jax", "torch")
]
FACTORS = {3: 4.0, 8: 0.0, 40: 2.5}
INSTEAD = {
    "class_weight": "use feed.to_keras(class_weight={...})",
    "sample_weight": "put weights into the source, as in ff.Table(weight=...)",
    "y": "labels come from the feed's source",
}


@pytest.fixture(scope="module", params=BACKENDS)
def told(request) -> dict:
    return at_work.told([at_work.work("keras_fits.py", request.param)])[0]


def test_what_keras_would_ignore_is_refused(told):
    for case, name in (
        *((name, name) for name in INSTEAD),
        ("y of evaluate", "y"),
        ("sample_weight of evaluate", "sample_weight"),
    ):
        assert (
            told["refused"][case]
            == f"{name} must not be given to fit or evaluate together with a feed: Keras would"
            f" ignore it; {INSTEAD[name]}"
        )
    assert told["refused"]["factors"].startswith(
        "class_weight must be like {0: 1.0, 1: 2.5}, got {0: -1.0}: a label"
    )
    assert told["untouched"] == [0, 0]


def test_class_weight_is_that_of_numpy(told):
    wanted = at_work.trained(factors=FACTORS)
    at_work.same(told["class_weight"], wanted)
    np.testing.assert_allclose(
        told["class_weight"]["losses"], wanted["losses"], rtol=1e-4, atol=1e-4
    )


def test_masked_samples_weigh_nothing(told):
    wanted = at_work.trained(factors=dict.fromkeys((4, 8, 40), 0.0))
    at_work.same(told["mask"], wanted)
    np.testing.assert_allclose(told["mask"]["losses"], wanted["losses"], rtol=1e-4, atol=1e-4)


def test_fewer_steps_per_epoch_go_through_the_data_without_gaps(told):
    """The feed's epoch has 5 steps: Keras's third continues in the next one."""
    short = told["steps_per_epoch"]
    assert list(map(len, short["steps"])) == [2] * 5
    assert short["state"] == [2, 0]
    at_work.same(short, at_work.trained(steps=10))


def test_several_steps_per_execution(told):
    at_work.same(told["steps_per_execution"], at_work.trained())
    assert told["steps_per_execution"]["state"] == [at_work.EPOCHS, 0]


def test_looks_at_batches_cost_none(told):
    """The 3 steps that are left of a restored epoch, and two epochs after another compile."""
    assert told["looks"] == [{1: 3, 2: 2}[told["together"]], 3, 0], (
        "executions at first, where the feed stands"
    )


def test_a_batch_that_was_trained_on_does_not_come_again(told):
    """Each fit of one step breaks an epoch off; the next one begins another."""
    assert told["one step"] == [[0, 1], [1, 1], [2, 1]]
