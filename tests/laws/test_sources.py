"""Laws of every source. A new source needs a row in SOURCES."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.source_examples import SOURCES

import fastfeed.sources
from fastfeed.decode.executor import Executor
from fastfeed.errors import ConfigError
from fastfeed.ops import Decode
from fastfeed.runtime.extension import is_built
from fastfeed.sources import Mixture, Objects, Source
from fastfeed.sources.base import Optionals, Sharded, sample_locations
from fastfeed.sources.methods import take
from fastfeed.spec import Spec


def backwards(source: Source) -> Source:
    return take(source, np.arange(len(source))[::-1])


@pytest.fixture(params=[*SOURCES, *(f"{name}, subset" for name in SOURCES)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bool], Source]:
    make_whole = SOURCES[request.param.removesuffix(", subset")]
    chosen = backwards if request.param.endswith(", subset") else lambda source: source
    return lambda changed=False: chosen(make_whole(tmp_path / "data", changed))


# of these only `read` knows where they lie
READ_ONLY = (
    "Mapped",
    "HuggingFace, remote",
    "HuggingFace, Parquet",
    "Files, remote",
    "ImageFolder, remote",
    "MDSShards, remote",
    "RawShards, remote",
    "Table, images in Parquet",
)


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def test_every_source_has_a_row():
    public = {
        name for name in fastfeed.sources.__all__ if name not in ("Cache", "Source", "Storage")
    }
    assert public == {name.partition(",")[0].partition(".")[0] for name in SOURCES}


def test_length_uris_and_classes(make):
    source = make()
    uris = [source.uri(i) for i in range(len(source))]
    assert len(set(uris)) == len(source) > 0
    assert all(isinstance(uri, str) for uri in uris)
    assert isinstance(source.classes, tuple)
    assert f"{len(source)} images" in repr(source)


def test_uris_of_many_ids(make):
    source = make()
    ids = np.array([1, 1, 0])
    assert source.uris(ids) == source.uris([1, 1, 0]) == [source.uri(i) for i in (1, 1, 0)]
    assert source.uris([]) == source.uris(np.empty(0, np.int64)) == []
    n = len(source)
    for wrong, got in (([0, n], f"in [0, {n}), got {n}"), ([-1], f"in [0, {n}), got -1")):
        with pytest.raises(ConfigError, match=re.escape(got)):
            source.uris(wrong)
    with pytest.raises(ConfigError, match=r"list of integers, got float64\[1\]"):
        source.uris([0.5])


def test_reads_the_same_again_in_any_order(make):
    source = make()
    ids = list(range(len(source)))
    blobs = source.read(ids)
    assert same(source.read(ids), blobs)
    assert same(source.read(ids[::-1]), blobs[::-1])
    assert same(source.read([1, 1, 0]), [blobs[1], blobs[1], blobs[0]])
    assert same(source.read(np.array([2, 0])), [blobs[2], blobs[0]])
    assert len(source.read([])) == 0


def test_samples_are_what_the_spec_says(make):
    source = make()
    for blob in source.read(range(len(source))):
        if source.spec.encoded:
            assert isinstance(blob, bytes)
        else:
            assert Spec(blob.shape, str(blob.dtype), "HWC") == source.spec


def test_labels(make):
    source = make()
    for ids in (np.arange(len(source)), np.array([1, 1, 0]), np.empty(0, np.int64)):
        labels = source.label(ids)
        assert (labels.shape, labels.dtype) == (ids.shape, np.int64)
    labels = source.label(np.arange(len(source)))
    assert np.all(labels >= -1)
    if source.classes:
        assert np.all((labels >= 0) & (labels < len(source.classes)))


def test_a_subset_has_what_the_source_has(make):
    source = make()
    chosen = np.array([len(source) - 1, 0, 1])
    part = take(source, chosen)
    own = np.sort(chosen) if getattr(source, "shares", None) is not None else chosen
    ids = np.array([2, 0])
    assert part.classes == source.classes and part.spec == source.spec
    assert part.uris(ids) == source.uris(own[ids])
    assert part.sample_names(ids) == source.sample_names(own[ids])
    assert same(part.read([2, 0]), source.read(own[ids].tolist()))
    here, there = Optionals(part), Optionals(source)
    assert (here.most, here.object_classes, here.frame, here.label_spec) == (
        there.most,
        there.object_classes,
        there.frame,
        there.label_spec,
    )
    for name in ("weights", "boxes", "columns", "column_values", "masks"):
        np.testing.assert_equal(getattr(here, name)(ids), getattr(there, name)(own[ids]))
    np.testing.assert_equal(here.objects(ids), there.objects(own[ids]))
    if isinstance(source, Sharded):
        assert part.sizes(ids).tolist() == source.sizes(own[ids]).tolist()
        unit = np.searchsorted(source.bounds, own, side="right") - 1
        units = np.searchsorted(part.bounds, np.arange(3), side="right") - 1
        assert [part.shard(k) for k in units] == [source.shard(k) for k in unit]


def test_sample_names_stay_where_the_data_goes(make, tmp_path):
    before = make().sample_names(np.arange(2))
    assert not any(str(tmp_path) in name or "://" in name for name in before)
    assert len(set(before)) == 2


def test_pickles(make):
    source = make()
    again = pickle.loads(pickle.dumps(source))
    assert len(again) == len(source)
    assert same(again.read([0, 1]), source.read([0, 1]))
    assert again.fingerprint == source.fingerprint == pickle.loads(pickle.dumps(source)).fingerprint


def test_fingerprint_changes_with_the_content(make):
    before = make().fingerprint
    assert make().fingerprint == before
    assert isinstance(before, str) and before
    assert make(True).fingerprint != before


@pytest.mark.skipif(not is_built(), reason="the native extension is not built")
def test_native_threads_read_what_python_reads(make, request):
    source = make()
    name = request.node.callspec.params["make"].removesuffix(", subset")
    last = len(source) - 1
    executor = Executor(Decode() if source.spec.encoded else None, 2)
    for ids in (np.arange(len(source)), np.array([last, 0, 1, 1]), np.empty(0, np.int64)):
        addresses = sample_locations(source, ids)
        if name in READ_ONLY:
            assert addresses is None
            continue
        assert addresses is not None or not len(ids)
        if addresses is None:
            continue
        samples = executor.read(addresses, 1 << 40, threading.Event())
        assert not samples.unread and len(samples) == len(ids)
        blobs = [
            blob if isinstance(blob, bytes) else blob.tobytes()
            for blob in source.read(ids.tolist())
        ]
        assert [samples.handle.bytes(row) for row in range(len(ids))] == blobs


def test_a_read_of_its_own_is_not_bypassed(make):
    source, ids = make(), np.arange(2)

    class Own(type(source)):
        def read(self, ids):
            return super().read(ids)

    if sample_locations(source, ids) is None:
        return
    own = pickle.loads(pickle.dumps(source))
    own.__class__ = Own
    assert sample_locations(own, ids) is None
    if not getattr(own, "together", None):
        assert sample_locations(Objects(own, [[]] * len(own)), ids) is None
    source.read = source.read
    assert sample_locations(source, ids) is None
    if not getattr(own, "together", None):
        assert sample_locations(Mixture([source]), ids) is None
