"""`to_torch`: tensors of the feed's own batches; what is read ahead is neither lost nor
overwritten.
"""

import copy
import gc
import threading

import numpy as np
import pytest
from helpers.needs import LazyModule, needs

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed
from fastfeed.feed.session import FeedSession

torch = LazyModule("torch")
pytestmark = needs("torch")

IMAGES = np.random.default_rng(0).integers(0, 256, (44, 8, 6, 3), dtype=np.uint8)
OPS = [ff.RandomFlip(), ff.Normalize.imagenet(), ff.ToLayout("CHW")]


def feed(ops=OPS, **options):
    return ff.Feed(ff.Arrays(IMAGES, np.arange(44)), ops, **{"batch": 8, "seed": 3, **options})


def test_tensors_hold_the_batches_of_the_feed():
    with feed() as data:
        loader = data.to_torch("cpu")
        assert len(loader) == 5
        for epoch in range(2):
            for (images, labels), batch in zip(loader, data.batches(epoch), strict=True):
                assert (
                    isinstance(images, torch.Tensor)
                    and images.dtype == torch.float32
                    and images.is_contiguous()
                )
                assert labels.dtype == torch.int64
                np.testing.assert_array_equal(images.numpy(), batch.images)
                np.testing.assert_array_equal(labels.numpy(), batch.labels)


def test_soft_labels_are_floats_as_cross_entropy_takes_them():
    with feed([*OPS, ff.OneHot(44), ff.MixUp()]) as data:
        for (images, labels), batch in zip(data.to_torch("cpu"), data.batches(0), strict=True):
            assert labels.dtype == torch.float32 and labels.shape == (8, 44)
            np.testing.assert_array_equal(labels.numpy(), batch.labels)
            loss = torch.nn.functional.cross_entropy(
                images.mean((1, 2, 3))[:, None].expand(8, 44), labels
            )
            assert loss.item() == pytest.approx(
                np.log(44), rel=1e-5
            )  # whatever the labels: they sum to 1


def test_objects_come_as_a_dict_of_tensors():
    boxes = [[[i % 4, 1, 6, 7]] * (i % 3) for i in range(44)]
    masks = [np.full((8, 6), i, np.uint8) for i in range(44)]
    with ff.Feed(ff.Objects(ff.Arrays(IMAGES), boxes, masks=masks), OPS, batch=8) as data:
        for (images, found), batch in zip(data.to_torch("cpu"), data.batches(0), strict=True):
            assert images.shape == (8, 3, 8, 6) and list(found) == ["boxes", "labels", "masks"]
            assert [found[name].dtype for name in found] == [
                torch.float32,
                torch.int64,
                torch.uint8,
            ]
            np.testing.assert_array_equal(found["boxes"], batch.objects.boxes)
            np.testing.assert_array_equal(found["labels"], batch.objects.labels)
            np.testing.assert_array_equal(found["masks"], batch.masks)
            # as torchvision's detectors take them: a dict per image
            one = int(batch.objects.counts.argmax())
            real = found["labels"][one] >= 0
            assert found["boxes"][one][real].shape == (int(batch.objects.counts[one]), 4)


def test_kept_tensors_stay_as_they_were():
    with feed(threads=2) as data:
        loader = data.to_torch("cpu")
        kept = [images for _ in range(4) for images, _ in loader]
        pure = [batch.images for epoch in range(4) for batch in data.batches(epoch)]
        for tensor, images in zip(kept, pure, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), images)


def test_batches_are_placed_ahead_of_their_turn_by_the_feeds_threads(monkeypatch):
    """The trainer's thread copies nothing, and at most prefetch + 1 batches are ahead of it."""
    from fastfeed.adapters.torch import TorchPlacement

    placed, put = [], TorchPlacement.put

    def noted(self, arrays, **options):
        placed.append((threading.current_thread().name, arrays[1][0].item()))
        return put(self, arrays, **options)

    monkeypatch.setattr(TorchPlacement, "put", noted)
    with feed(prefetch=2, threads=2) as data:
        walk = iter(data.to_torch("cpu"))
        for step in range(1, 6):
            next(walk)
            assert step <= len(placed) <= step + 3
        first = {batch.labels[0].item() for batch in data.batches(0)}
    assert {name.rstrip("0123456789") for name, _ in placed} == {"fastfeed-"}
    assert first <= {label for _, label in placed}


def test_conversion_on_the_device_differs_by_rounding_alone():
    for ops in (OPS, [ff.ToFloat("float16")], [ff.ToLayout("CHW")], [ff.Standardize()]):
        with feed(ops) as data:
            for (images, _), batch in zip(
                data.to_torch("cpu", convert="device"), data.batches(0), strict=True
            ):
                assert str(images.dtype) == f"torch.{batch.images.dtype}"
                assert images.shape == batch.images.shape
                atol = 1e-3 if batch.images.dtype == np.float16 else 2e-6
                np.testing.assert_allclose(images.numpy(), batch.images, rtol=0, atol=atol)


@pytest.mark.parametrize("convert", ["host", "device"])
def test_bfloat16_is_rounded_as_pytorch_does(convert):
    ops = [ff.Normalize.imagenet(), ff.MixUp(), ff.OneHot(44), ff.ToFloat("bfloat16")]
    with feed(ops, shuffle=False) as data, feed(ops[:-1], shuffle=False) as exact:
        assert data.fields["image"].dtype == "bfloat16"
        images = next(iter(data.to_torch("cpu", convert=convert)))[0]
        floats = next(iter(exact.to_torch("cpu", convert=convert)))[0]
        assert images.dtype == torch.bfloat16
        assert torch.equal(images, floats.to(torch.bfloat16))


def test_bytes_need_no_conversion_and_are_not_touched():
    with feed([]) as data:
        assert not FeedSession.of(data).converts
        images, _ = next(iter(data.to_torch("cpu", convert="device")))
        assert images.dtype == torch.uint8


def test_state_dict_is_the_trainers_position_and_survives_deepcopy():
    with feed() as data:
        loader = data.to_torch("cpu")
        walk = iter(loader)
        for _ in range(3):
            next(walk)
        state = copy.deepcopy(loader.state_dict())
        assert (state["epoch"], state["step"]) == (0, 3)
        rest = [labels.tolist() for _, labels in walk]
    with feed() as data:
        loader = data.to_torch("cpu")
        loader.load_state_dict(state)
        assert [labels.tolist() for _, labels in loader] == rest
        assert loader.state_dict()["epoch"] == 1


def test_weights_come_third_where_they_may_differ():
    second = ff.World(1, 2, 1, 2)
    with feed(tail="pad", world=second, shuffle=False, on_bad="mask") as data:
        assert [weights.sum().item() for _, _, weights in data.to_torch("cpu")] == [8.0, 8.0, 6.0]
    with feed(tail="pad", world=second, shuffle=False) as data:
        assert [len(labels) for _, labels in data.to_torch("cpu")] == [8, 8, 6]
    with feed(tail="pad", shuffle=False) as data:
        assert [len(labels) for _, labels in data.to_torch("cpu")] == [8, 8, 8, 8, 8, 4]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_share_an_incomplete_last_batch(size):
    """So that no rank's mean loss is that of nothing, and each sample comes once."""
    seen = []
    for rank in range(size):
        with feed(tail="pad", batch=6, world=ff.World(rank, size, rank, size)) as data:
            for images, labels in data.to_torch("cpu"):
                loss = torch.nn.functional.mse_loss(images.mean((1, 2, 3)), labels.float())
                assert loss.isfinite()
                seen += labels.tolist()
    assert sorted(seen) == list(range(44))


def test_a_last_batch_of_fewer_samples_than_ranks_is_refused():
    with feed(tail="pad", batch=14, world=ff.World(0, 3, 0, 3)) as data:
        with pytest.raises(
            ConfigError, match="leaves 2 of 44 samples to the last batch of 3 ranks"
        ):
            data.to_torch("cpu")


def test_two_iterations_at_once_are_refused():
    with feed() as data:
        loader = data.to_torch("cpu")
        first = iter(loader)
        next(first)
        next(iter(loader))
        with pytest.raises(FeedClosed, match="another iteration of this feed has begun"):
            next(first)


def test_words_for_wrong_arguments():
    with feed() as data:
        with pytest.raises(
            ConfigError, match="device must be one that this PyTorch computes on, got 'gpu:0'"
        ):
            data.to_torch("gpu:0")
        with pytest.raises(
            ConfigError, match="convert must be one of auto, host, device, got 'gpu'"
        ):
            data.to_torch("cpu", convert="gpu")
        if not torch.cuda.is_available():
            with pytest.raises(
                ConfigError, match="device must be one that this PyTorch computes on, got 'cuda:0'"
            ):
                data.to_torch("cuda:0")


def test_printing_says_what_is_on_the_device():
    with feed() as data:
        text = str(data.to_torch("cpu"))
        assert "placed on torch cpu: at most 4 batches, 18.7 kB" in text
        data.to_torch("cpu", convert="device")
        assert "and the bytes of one" in str(data)
        assert str(data).count("placed on") == 1


def test_a_device_without_room_says_what_to_lower(monkeypatch):
    with feed() as data:
        loader = data.to_torch("cpu")

        def no_room(*_):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 38 MiB\nmore lines")

        monkeypatch.setattr("fastfeed.adapters.torch._host", no_room)
        with pytest.raises(ff.errors.DeviceMemory) as caught:
            next(iter(loader))
        text = str(caught.value)
        assert (
            "torch cpu has no memory left for a batch of 4.7 kB; up to 4 of them are there at once"
            in text
        )
        assert "lower the batch size, or prefetch by one" in text
        assert text.endswith("CUDA out of memory. Tried to allocate 38 MiB")


def test_dropping_everything_ends_the_threads():
    data = feed(threads=2)
    walk = iter(data.to_torch("cpu"))
    next(walk)
    assert any(t.name.startswith("fastfeed") for t in threading.enumerate())
    del walk, data
    gc.collect()
    for thread in [t for t in threading.enumerate() if t.name.startswith("fastfeed")]:
        thread.join(5)
        assert not thread.is_alive()


def test_ranks_that_disagree_are_refused(tmp_path):
    """DDP started by hand, with nothing in the environment: every process would train on the same
    samples.
    """
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        with feed(world=ff.World.detect({})) as data:
            data.to_torch("cpu")
    finally:
        torch.distributed.destroy_process_group()
