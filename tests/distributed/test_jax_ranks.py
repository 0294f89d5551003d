"""JAX: two processes with two devices each; Keras on JAX over their devices, and over four of one
process.
"""

import numpy as np
import pytest
import ranks_at_work as at_work
from helpers.needs import needs

import fastfeed as ff

pytestmark = [pytest.mark.slow, needs("jax", "keras")]

DEVICES = (
    "the batch must divide among the devices of its sharding, got {} samples for 4 devices; change"
    " batch to a "
)


def processes(how: str) -> list[dict]:
    place = {"JAX_NUM_PROCESSES": "2"} if how == "environment" else {}
    address, ranks = f"localhost:{at_work.ports(1)[0]}", range(2)
    started = [place | ({"JAX_PROCESS_ID": str(rank)} if place else {}) for rank in ranks]
    return at_work.told(
        [at_work.work("jax_rank.py", how, rank, address, **started[rank]) for rank in ranks]
    )


@pytest.fixture(scope="module")
def ranks() -> list[dict]:
    return processes("environment")


@pytest.fixture(scope="module")
def keras() -> dict:
    return at_work.told([at_work.work("keras_devices.py")])[0]


def test_global_arrays_hold_the_batches_of_a_world_of_one(ranks):
    with at_work.feed() as data:
        batches = list(data.batches(epochs=at_work.EPOCHS))
    for told in ranks:
        assert told["seen"] == [batch.ids.tolist() for batch in batches]
        sums = [batch.images.sum((1, 2, 3)) for batch in batches]
        np.testing.assert_allclose(told["sums"], sums, rtol=1e-5)
    assert at_work.joined([told["here"] for told in ranks]) == at_work.order()


def test_training_over_both_processes_ends_as_one_process(ranks):
    for told in ranks:
        at_work.same(told, at_work.trained())
        assert "placed on JAX cpu:0 and 3 more" in told["text"]


def test_batches_in_a_gpus_memory_are_shares_of_global_arrays(ranks):
    for told in ranks:
        assert told["of a GPU"] == [[value] for value in (0, 1, 2, 3, 10, 11, 12, 13)]


def test_batches_that_cannot_be_laid_out_are_refused_on_every_process(ranks):
    for told in ranks:
        assert told["wrong batch"].startswith(DEVICES.format(6))


def test_processes_of_a_mesh_that_share_rows_read_the_same_samples(ranks):
    with at_work.feed(world=ff.World()) as data:
        batch = next(data.batches())
    for told in (rank["shared"] for rank in ranks):
        assert told["world"] == "rank 0 of 1 (local 0 of 1), 2 processes each, found by device mesh"
        assert told["labels"] == batch.labels.tolist()
        np.testing.assert_array_equal(np.float32(told["images"]), batch.images)
        assert told["own"] == [[4, 2, 4, 3]] * 2, "half of each image's height, of all rows"


def test_samples_that_rows_of_a_sharding_would_mix_are_refused(ranks):
    """Without the error, the processes' copies of a row would hold different samples."""
    for rank, told in enumerate(ranks):
        text = (
            "the sharding gives this process part {} of {} of each batch, but the feed reads as"
            " rank {} of {}: rows of one array would differ between processes; pass"
            " Feed(world=ff.World.of_mesh(mesh, {}))"
        )
        assert told["copies"] == text.format(0, 1, rank, 2, "()")
        assert told["shared"]["refused"] == text.format(0, 1, rank, 2, "'data'")
        assert told["shared"]["refused again"] == text.format(rank, 2, 0, 1, "'model'")


def test_texts_stay_with_the_process_whose_numbers_they_describe(ranks):
    for told in ranks:
        together, years = told["years"]
        assert together == 8 and len(years) == 4
        assert told["texts"] == [f"caption {year - 2000} ä" for year in years]
    assert len({year for told in ranks for year in told["years"][1]}) == 8


def test_keras_fits_over_both_processes(ranks):
    for told in ranks:
        at_work.same(told["keras"], at_work.trained())
        losses = np.reshape(at_work.trained()["losses"], (at_work.EPOCHS, -1)).mean(1)
        np.testing.assert_allclose(told["keras"]["loss"], losses, rtol=1e-5)
        assert told["keras"]["state"] == [at_work.EPOCHS, 0]
        assert told["keras"]["wrong batch"].startswith(DEVICES.format(9))


def test_a_feed_that_knows_of_one_process_is_refused():
    """jax.distributed.initialize with arguments leaves nothing in the environment."""
    for rank, told in enumerate(processes("arguments")):
        assert (
            told["refused"]
            == "the feed reads as rank 0 of 1 (no launcher in the environment), but JAX runs this"
            f" process as {rank} of 2: every process would train on the same samples; pass"
            f" Feed(world=ff.World({rank}, 2, local_rank, local_size)), or world=ff.World() if"
            " this is meant"
        )
        assert told["labels"] == at_work.order()[0][4 * rank : 4 * rank + 4], (
            "with a world that was passed"
        )


def test_keras_gets_batches_that_lie_on_its_devices(keras):
    look, *batches = keras["arrived"]
    assert look == [0, False], "zeros, to build the model's metrics with"
    assert batches == [[4, True]] * 2 * 5 * at_work.EPOCHS, "sharded, and taken as they are"
    assert "placed on JAX cpu:0 and 3 more" in keras["text"]


def test_keras_over_four_devices_ends_as_one(keras):
    at_work.same(keras, at_work.trained())
    losses = np.reshape(at_work.trained()["losses"], (at_work.EPOCHS, -1)).mean(1)
    np.testing.assert_allclose(keras["history"]["loss"], losses, rtol=1e-5)
    assert keras["state"] == [at_work.EPOCHS, 0]
    assert keras["evaluated"] == pytest.approx(keras["by hand"], abs=1e-5)
    assert keras["history"]["val_loss"][-1] == pytest.approx(keras["by hand"][0], abs=1e-5)
    assert keras["shape"] == [40, at_work.SAMPLES]
    assert keras["wrong batch"].startswith(DEVICES.format(6))
