"""TensorFlow's strategies: two workers, each with its own batches; two devices that share one
process's.
"""

import json

import pytest
import ranks_at_work as at_work
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("tensorflow", "keras")]

STEPS = at_work.SAMPLES // 8


@pytest.fixture(scope="module")
def workers() -> list[dict]:
    cluster = {"worker": [f"localhost:{port}" for port in at_work.ports(2)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
    return at_work.told(
        [at_work.work("tf_rank.py", "worker", TF_CONFIG=json.dumps(task)) for task in tasks]
    )


@pytest.fixture(scope="module")
def devices() -> dict:
    return at_work.told([at_work.work("tf_rank.py", "devices")])[0]


def test_workers_share_the_global_batches_and_end_as_one_process(workers):
    assert at_work.joined([worker["seen"] for worker in workers]) == at_work.order()
    assert [worker["steps"] for worker in workers] == [[STEPS] * at_work.EPOCHS] * 2
    for worker in workers:
        at_work.same(worker, at_work.trained())


def test_keras_with_several_workers_is_refused_with_what_to_do_instead(workers):
    for rank, worker in enumerate(workers):
        for name, got in (
            ("together", "a strategy of 2"),
            ("alone", f"rank {rank} of 2 (TF_CONFIG)"),
        ):
            assert worker[name].startswith(
                f"to_keras can feed one TensorFlow worker, got {got}: Keras 3 does not run"
            )
            assert (
                "distribute_datasets_from_function(lambda context: feed.to_tfdata())"
                in worker[name]
            )


def test_a_dataset_that_is_distributed_gives_each_device_its_piece(devices):
    assert devices["pieces"]["seen"] == at_work.order()
    at_work.same(devices["pieces"], at_work.trained())


def test_a_dataset_per_device_gives_each_whole_batches(devices):
    """Which is two of the feed in every step; without a partner the fifth is left out."""
    order = at_work.order()
    pairs = [
        order[e * STEPS + s] + order[e * STEPS + s + 1]
        for e in range(at_work.EPOCHS)
        for s in (0, 2)
    ]
    assert devices["whole"]["seen"] == pairs


@pytest.mark.parametrize("name", ["fit", "fit outside"])
def test_fit_on_two_devices_ends_as_one_process(devices, name):
    told = devices[name]
    at_work.same(told, at_work.trained())
    assert told["steps"] == [*range(STEPS)] * 2
    assert (told["first"]["state"]["epoch"], told["first"]["state"]["step"]) == (1, 0), (
        "Keras's look took nothing"
    )
    assert len(told["first"]["val_loss"]) == 1
    assert told["evaluated"] == pytest.approx(told["by_hand"], abs=1e-5)
    assert told["predicted"] == [at_work.SAMPLES, at_work.SAMPLES]


def test_fit_on_two_devices_resumes_in_the_middle_of_an_epoch(devices):
    assert devices["restored"] == [2, STEPS, 2, 0]


@pytest.mark.parametrize("name", ["applied", "device"])
def test_datasets_that_work_ahead_on_a_device(devices, name):
    assert devices[name] == at_work.order()
