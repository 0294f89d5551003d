"""Run by test_jax.py in a process of its own, with four devices: every function named check_* is
one test.
"""

import gc
import importlib.util
import json
import os
import sys
import tempfile
import threading
import traceback
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
# XLA\'s threads: one that waits in an all-reduce holds its, and two may not be enough
os.environ["NPROC"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import jax
import numpy as np
from helpers import field_feeds, source_examples
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastfeed as ff
from fastfeed.adapters.jax import JaxPlacement
from fastfeed.errors import ConfigError, DeviceMemory, FeedClosed, StateError
from fastfeed.feed.session import FeedSession

IMAGES = np.random.default_rng(0).integers(0, 256, (44, 8, 6, 3), dtype=np.uint8)
OPS = [ff.RandomFlip(), ff.Normalize.imagenet(), ff.ToLayout("CHW")]
SHARDED = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))


def feed(ops=OPS, **options):
    return ff.Feed(ff.Arrays(IMAGES, np.arange(44)), ops, **{"batch": 8, "seed": 3, **options})


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}")


def check_views_of_several_sizes_are_a_tuple():
    ops = [ff.MultiCrop((ff.View(8, 2), ff.View(4, 3))), ff.ToFloat()]
    with feed(ops) as data:
        want = next(iter(data.batches(0)))
        views, labels = next(iter(data.to_jax()))
        assert isinstance(views, tuple) and len(views) == 2
        for view, other in zip(views, want.views, strict=True):
            np.testing.assert_array_equal(view, other)
        np.testing.assert_array_equal(labels, want.labels)


def check_arrays_hold_the_batches_of_the_feed():
    with feed() as data:
        loader = data.to_jax()
        assert len(loader) == 5
        for epoch in range(2):
            for (images, labels), batch in zip(loader, data.batches(epoch), strict=True):
                assert isinstance(images, jax.Array) and images.devices() == {jax.devices()[0]}
                assert labels.dtype == np.int32  # as JAX without 64 bits has it
                np.testing.assert_array_equal(images, batch.images)
                np.testing.assert_array_equal(labels, batch.labels)


def check_all_arrays_of_a_batch_are_put_by_one_call():
    calls, device_put = [], jax.device_put
    with feed() as data:
        loader = data.to_jax(yields=("image", "label", "weight"))
        jax.device_put = lambda arrays, *where: (
            calls.append(len(arrays)) or device_put(arrays, *where)
        )
        try:
            assert len(list(loader)) == 5 and set(calls) == {3}
        finally:
            jax.device_put = device_put


def check_objects_come_as_a_dict_of_arrays():
    boxes = [[[i % 4, 1, 6, 7]] * (i % 3) for i in range(44)]
    with ff.Feed(ff.Objects(ff.Arrays(IMAGES), boxes), OPS, batch=8) as data:
        for sharding in (None, SHARDED):
            for (images, found), batch in zip(
                data.to_jax(sharding), data.batches(data.state()["epoch"]), strict=True
            ):
                assert images.shape == (8, 3, 8, 6) and list(found) == ["boxes", "labels"]
                assert found["boxes"].sharding.device_set == images.sharding.device_set
                np.testing.assert_array_equal(found["boxes"], batch.objects.boxes)
                np.testing.assert_array_equal(found["labels"], batch.objects.labels)


def check_items_have_the_structure_that_yields_says():
    """Over all kinds of fields, on one device and split over four; texts stay on the host."""
    for kind in field_feeds.FEEDS:
        with (
            tempfile.TemporaryDirectory() as folder,
            field_feeds.feed(kind, Path(folder)) as data,
        ):
            chosen = None, *field_feeds.structures(data, every=kind == "columns")
            field_feeds.check_yields(data, lambda data, y: data.to_jax(yields=y), chosen)
            field_feeds.check_yields(data, lambda data, y: data.to_jax(SHARDED, yields=y), chosen)
            text = [name for name, field in data.fields.items() if field.dtype == "str"][:1]
            for name in text:
                image, texts = next(iter(data.to_jax(SHARDED, yields=("image", name))))
                assert isinstance(texts, np.ndarray) and len(image.sharding.device_set) == 4


def check_every_source_is_yielded():
    for name in source_examples.SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            with source_examples.small_feed(name, Path(folder)) as data:
                chosen = field_feeds.structures(data, every=False)
                field_feeds.check_yields(data, lambda data, y: data.to_jax(yields=y), chosen)


def check_integers_that_do_not_fit_are_refused():
    class Stamped(ff.Arrays):
        def columns(self, ids):
            return {"stamp": np.full(len(ids), 1 << 40)}

    with ff.Feed(Stamped(IMAGES, np.arange(44)), [], batch=8) as data:
        next(iter(data.to_jax()))
        words = "integers must fit in int32 for JAX, got 1099511627776 among int64"
        refused(ConfigError, words, lambda: next(iter(data.to_jax(yields=("image", "stamp")))))


def check_single_views_are_converted_on_the_device():
    ops = [ff.MultiCrop((ff.View(8, 2),)), ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    with feed(ops) as data:
        batch = next(data.batches(0))
        item = next(iter(data.to_jax(convert="device", yields=["view_1", "image", "label"])))
        field_feeds.assert_holds(item, ["view_1", "image", "label"], batch)


def check_memory_is_taken_as_it_is_and_not_used_again():
    big = np.random.default_rng(1).integers(0, 256, (64, 64, 64, 3), dtype=np.uint8)
    with ff.Feed(ff.Arrays(big, np.arange(64)), [], batch=8, threads=2) as data:
        where = set()
        placed = FeedSession.of(data).placed(None)
        for batch in placed:
            array = jax.device_put(batch.images)
            assert array.unsafe_buffer_pointer() == batch.images.ctypes.data
            where.add(batch.images.ctypes.data)
        del batch, array
        kept = [images for _ in range(4) for images, _ in data.to_jax()]
        for array, batch in zip(kept, data.batches(1, epochs=4), strict=True):
            np.testing.assert_array_equal(array, batch.images)


def check_batches_are_placed_ahead_of_their_turn_by_the_feeds_threads():
    names, put = [], JaxPlacement.put

    def noted(self, arrays, **options):
        names.append(threading.current_thread().name)
        return put(self, arrays, **options)

    JaxPlacement.put = noted
    try:
        with feed(prefetch=2, threads=2) as data:
            walk = iter(data.to_jax(SHARDED))
            for step in range(1, 6):
                next(walk)
                assert step <= len(names) <= step + 3
    finally:
        JaxPlacement.put = put
    assert {name.rstrip("0123456789") for name in names} == {"fastfeed-"}


def check_prefetch_to_device_lays_batches_over_devices():
    batches = ({"x": np.full((8, 3), i), "y": np.arange(8)} for i in range(5))
    for i, item in enumerate(ff.prefetch_to_device(batches, SHARDED)):
        assert [shard.data.shape for shard in item["x"].addressable_shards] == [(2, 3)] * 4
        assert int(item["x"].sum()) == 24 * i and item["y"].tolist() == list(range(8))


def check_a_sharding_lays_batches_over_devices():
    with feed() as data:
        for (images, labels), batch in zip(data.to_jax(SHARDED), data.batches(0), strict=True):
            assert images.sharding.is_equivalent_to(
                SHARDED, 4
            ) and labels.sharding.is_equivalent_to(SHARDED, 1)
            assert [shard.data.shape[0] for shard in images.addressable_shards] == [2, 2, 2, 2]
            np.testing.assert_array_equal(images, batch.images)
            np.testing.assert_array_equal(labels, batch.labels)
        wide = NamedSharding(SHARDED.mesh, PartitionSpec("batch", None, None, None))
        images, labels = next(iter(data.to_jax(wide)))
        assert len(labels.addressable_shards) == 4


def check_soft_labels_are_split_by_sample_alone():
    """Whatever a sharding says of the images' other axes: five classes do not divide among two
    devices.
    """
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("batch", "rows"))
    for sharding, parts in (
        (SHARDED, (2, 5)),
        (NamedSharding(mesh, PartitionSpec("batch", "rows")), (4, 5)),
    ):
        source = ff.Arrays(IMAGES, np.arange(44) % 5)
        with ff.Feed(source, [ff.OneHot(5), ff.CutMix()], batch=8, seed=3) as data:
            for (images, labels), batch in zip(data.to_jax(sharding), data.batches(0), strict=True):
                assert labels.dtype == np.float32 and {
                    s.data.shape for s in labels.addressable_shards
                } == {parts}
                assert images.sharding.is_equivalent_to(sharding, 4)
                np.testing.assert_array_equal(labels, batch.labels)
                np.testing.assert_array_equal(images, batch.images)


def check_a_device_may_be_chosen():
    with feed() as data:
        images, labels = next(iter(data.to_jax(jax.devices()[2])))
        assert images.devices() == labels.devices() == {jax.devices()[2]}
        images, _ = next(iter(data.to_jax("cpu:3")))
        assert images.devices() == {jax.devices()[3]}


def check_conversion_on_the_device_differs_by_rounding_alone():
    for ops in (OPS, [ff.ToFloat("float16")], [ff.ToLayout("CHW")], [ff.Standardize()]):
        with feed(ops) as data:
            for (images, _), batch in zip(
                data.to_jax(SHARDED, convert="device"), data.batches(0), strict=True
            ):
                assert images.dtype == batch.images.dtype and images.shape == batch.images.shape
                atol = 1e-3 if batch.images.dtype == np.float16 else 2e-6
                np.testing.assert_allclose(np.asarray(images), batch.images, rtol=0, atol=atol)


def check_bfloat16_is_rounded_as_jax_does():
    ops = [ff.Normalize.imagenet(), ff.ToFloat("bfloat16")]
    with feed(ops, side_process=True) as data, feed(ops[:-1]) as exact:
        for convert in ("host", "device"):
            images = next(iter(data.to_jax(convert=convert)))[0]
            floats = next(iter(exact.to_jax(convert=convert)))[0]
            np.testing.assert_array_equal(images, floats.astype("bfloat16"))


def check_padding_keeps_the_shape_and_weighs_nothing():
    with feed(tail="pad", shuffle=False) as data:
        rows = list(data.to_jax())
        assert [images.shape[0] for images, _, _ in rows] == [8] * 6
        assert [float(weights.sum()) for _, _, weights in rows] == [8.0] * 5 + [4.0]


def check_the_position_is_the_trainers():
    with feed() as data:
        walk = iter(data.to_jax())
        for _ in range(3):
            next(walk)
        state = data.state()
        assert (state["epoch"], state["step"]) == (0, 3)
        rest = [labels.tolist() for _, labels in walk]
    with feed() as data:
        data.restore(state)
        assert [labels.tolist() for _, labels in data.to_jax()] == rest


def check_the_state_is_that_of_a_grain_iterator():
    with feed() as data:
        walk = iter(data.to_jax())
        for _ in range(3):
            next(walk)
        state = walk.get_state()
        assert json.loads(state) == data.state()
        rest = [labels.tolist() for _, labels in walk]
        next(iter(data.to_jax()))
        walk.set_state(state)
        walk.start_prefetch()
        assert [labels.tolist() for _, labels in walk] == rest, "the same iterator"
    with feed() as data:
        loader = data.to_jax()
        loader.set_state(state)
        assert [labels.tolist() for _, labels in loader] == rest
        words = "a saved state must be the bytes that get_state() returned, got b'{'"
        refused(StateError, words, lambda: loader.set_state(b"{"))
        grains = b'{"next_index": 3}'
        words = "a saved state needs epoch, step"
        refused(StateError, words, lambda: loader.set_state(grains))
    with feed(batch=4) as data:
        words = "cannot restore: global_batch was 8, this feed has 4"
        refused(StateError, words, lambda: iter(data.to_jax()).set_state(state))


def check_a_data_set_of_grain_around_a_feed_is_refused():
    """It would shuffle and shard what the feed has dealt out to ranks."""
    if importlib.util.find_spec("grain") is None:  # it has wheels from Python 3.11 on
        return
    import grain

    with feed() as data:
        for what in (data, data.to_jax()):
            around = grain.MapDataset.source(what).shuffle(seed=0)[0::2]
            words = "or a Grain data set, which would shuffle and shard it again: for images,"
            refused(ConfigError, words, lambda around=around: around[0])


def check_two_iterations_at_once_are_refused():
    with feed() as data:
        loader = data.to_jax()
        first = iter(loader)
        next(first)
        next(iter(loader))
        refused(FeedClosed, "another iteration of this feed has begun", lambda: next(first))


def check_words_for_wrong_arguments():
    with feed(batch=6) as data:
        words = (
            "the batch must divide among the devices of its sharding, got 6 samples for 4 devices"
        )
        refused(ConfigError, words, lambda: data.to_jax(SHARDED))
        refused(
            ConfigError,
            "device must be one of those JAX sees (cpu:0, cpu:1",
            lambda: data.to_jax("cpu:9"),
        )
        refused(
            ConfigError,
            "sharding must be a jax.sharding.Sharding",
            lambda: data.to_jax(SHARDED.mesh),
        )
        refused(
            ConfigError,
            "convert must be one of auto, host, device",
            lambda: data.to_jax(convert=True),
        )
    with feed() as data:
        placement = JaxPlacement(SHARDED)
        placement._global = True  # as over processes, some of whose rows are not those of another
        words = "a sharding must give each process the same rows as another one, or none in common"
        refused(ConfigError, words, lambda: placement.check(data.plan))
    with feed(tail="pad") as data:
        words = 'yields has no weights, so that they would count; name "weight" in yields'
        refused(ConfigError, words, lambda: data.to_jax(yields=("image", "id")))
        assert len(next(iter(data.to_jax(yields=("image", "id", "weight"))))) == 3
    with ff.Feed(field_feeds.Dated(field_feeds.IMAGES), [], batch=4) as data:
        words = "the field 'taken' here: JAX has no arrays of datetime64[D]"
        refused(ConfigError, words, lambda: data.to_jax(yields=("image", "taken")))


def check_a_device_without_room_says_what_to_lower():
    real = jax.device_put

    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 38 bytes.")

    with feed() as data:
        loader = data.to_jax()
        jax.device_put = full
        try:
            refused(
                DeviceMemory,
                "JAX cpu:0 has no memory left for a batch of",
                lambda: next(iter(loader)),
            )
        finally:
            jax.device_put = real


def check_printing_says_what_is_on_the_devices():
    with feed() as data:
        assert "placed on JAX cpu:0 and 3 more: at most 4 batches" in str(data.to_jax(SHARDED))
        assert "placed on JAX cpu:0: at most 4 batches" in str(data.to_jax())


def check_anybodys_batches():
    buffer = np.zeros((4, 5), np.float32)

    def batches():
        for i in range(12):
            buffer[:] = i  # the same memory every time
            yield {"x": buffer, "i": i, "pair": (buffer[:1], "text")}

    found = list(ff.prefetch_to_device(batches(), "jax", depth=3))
    assert [item["i"] for item in found] == list(range(12))
    for i, item in enumerate(found):
        assert isinstance(item["x"], jax.Array) and float(item["x"][2, 2]) == i == float(
            item["pair"][0][0, 0]
        )
        assert item["pair"][1] == "text"


def check_a_feed_through_prefetch_to_device():
    with feed() as data:
        for placed, batch in zip(
            ff.prefetch_to_device(data, jax.devices()[1]), data.batches(0), strict=True
        ):
            assert placed.images.devices() == {jax.devices()[1]}
            np.testing.assert_array_equal(placed.images, batch.images)
            np.testing.assert_array_equal(placed.ids, batch.ids)
            assert (placed.epoch, placed.step) == (batch.epoch, batch.step)


def check_dropping_everything_ends_the_threads():
    data = feed(threads=2)
    walk = iter(data.to_jax())
    next(walk)
    del walk, data
    gc.collect()
    for thread in [t for t in threading.enumerate() if t.name.startswith("fastfeed")]:
        thread.join(5)
        assert not thread.is_alive()


result = {}
for name, check in [pair for pair in globals().items() if pair[0].startswith("check_")]:
    try:
        check()
        result[name] = ""
    except BaseException:
        result[name] = traceback.format_exc()
json.dump(result, sys.stdout)
