"""The public names of a feed, its configuration, and the names that moved to its session."""

from __future__ import annotations

import pickle
import sys
import threading
import types

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.feed.config import FeedConfig
from fastfeed.feed.feed import Feed
from fastfeed.feed.moved import MOVED
from fastfeed.feed.session import FeedSession

SOURCE = ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8))


@pytest.fixture
def feed():
    with Feed(SOURCE, [ff.RandomFlip()], batch=2, threads=1) as made:
        yield made


def test_a_feed_has_thirteen_names_and_no_base_class(feed):
    assert len([name for name in dir(feed) if not name.startswith("_")]) <= 13
    assert Feed.__mro__ == (Feed, object)
    assert not hasattr(feed, "shape") and not hasattr(feed, "colour")


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_warns_with_its_new_place(feed, name):
    assert not hasattr(Feed, name)
    place = f"FeedSession.of(feed).{MOVED[name]}, from fastfeed.feed.session import FeedSession"
    with pytest.warns(DeprecationWarning, match="is deprecated") as caught:
        old = getattr(feed, name)
    assert place in str(caught[0].message)
    new = FeedSession.of(feed)
    for part in MOVED[name].split("."):
        new = getattr(new, part)
    assert old == new


def test_transform_and_keras_backup_say_their_new_names(feed, monkeypatch):
    with pytest.warns(DeprecationWarning, match=r"use ff\.Transform\.of\(feed\)"):
        assert feed.transform.ops == ff.Transform.of(feed).ops == [ff.RandomFlip()]
    adapter = types.SimpleNamespace(backup=lambda *arguments, **options: (arguments, options))
    monkeypatch.delitem(sys.modules, "fastfeed.adapters.keras.backup", raising=False)
    with pytest.warns(DeprecationWarning, match=r"use ff\.keras\.backup\(feed, folder\)"):
        old = feed.keras_backup
    assert "fastfeed.adapters.keras.backup" not in sys.modules  # which imports Keras
    monkeypatch.setitem(sys.modules, "fastfeed.adapters.keras.backup", adapter)
    old = old("backup", save_freq=3)
    assert old == ((FeedSession.of(feed), "backup"), {"save_freq": 3})


def test_a_configuration_is_checked_and_pickles_without_a_thread_or_a_file(tmp_path):
    threads = threading.active_count()
    listed = tmp_path / "quarantine.jsonl"
    config = FeedConfig.make(SOURCE, [ff.RandomFlip()], batch=2, quarantine=listed)
    copied = pickle.loads(pickle.dumps(config))
    assert (copied.plan, copied.program, copied.policy) == (
        config.plan,
        config.program,
        config.policy,
    )
    assert "batch=2" in str(config) or "global_batch=2" in str(config)
    assert threading.active_count() == threads and not listed.exists()
    with pytest.raises(ConfigError, match="prefetch must be an integer >= 0, got -1"):
        FeedConfig.make(SOURCE, [], batch=2, prefetch=-1)


def test_a_session_of_a_configuration_makes_the_batches_of_the_feed(feed):
    session = FeedSession(FeedConfig.make(SOURCE, [ff.RandomFlip()], batch=2, threads=1))
    try:
        ids = [batch.ids.tolist() for batch in session.placed(None)]
        assert ids == [batch.ids.tolist() for batch in feed]
    finally:
        session.close()


def test_other_data_has_no_session(feed):
    assert FeedSession.of(FeedSession.of(feed)) is FeedSession.of(feed)
    assert FeedSession.find([1, 2]) is None
    with pytest.raises(ConfigError, match="a Feed is needed"):
        FeedSession.of([1, 2])
