"""Saved states that belong to another feed, were written by hand, or are used by two roles at
once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs
from helpers.photos import folder

import fastfeed as ff
from fastfeed.errors import ConfigError, StateError


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ff.ImageFolder:
    return ff.ImageFolder(
        folder(tmp_path_factory.mktemp("s") / "photos", {"a": 12, "b": 12}, (24, 32))
    )


def feed(photos: ff.ImageFolder, *ops: Any, **more: Any) -> ff.Feed:
    return ff.Feed(
        photos,
        list(ops) or [ff.Resize((16, 16)), ff.RandomFlip()],
        **({"batch": 4, "threads": 1} | more),
    )


def test_other_ops_are_named_and_refused_on_request(photos: ff.ImageFolder, tmp_path: Path) -> None:
    with feed(photos) as before, feed(photos, ff.Resize((16, 16)), ff.RandomFlip(p=0.9)) as now:
        next(iter(before))
        ff.save_state(tmp_path / "feed.json", before.state())
        saved = ff.load_state(tmp_path / "feed.json")
        with pytest.raises(
            StateError,
            match=r"cannot restore: the ops were RandomFlip\(\), now RandomFlip\(p=0.9\)",
        ):
            now.restore(saved, strict="ops")
        with pytest.warns(
            RuntimeWarning, match=r"the ops were RandomFlip\(\), now RandomFlip\(p=0.9\)"
        ):
            now.restore(saved)
        assert (now.state()["epoch"], now.state()["step"]) == (0, 1)


def test_another_policy_is_named(photos: ff.ImageFolder) -> None:
    with feed(photos) as before, feed(photos, on_bad="mask") as now:
        with pytest.warns(
            RuntimeWarning,
            match="the policy for bad samples was 'substitute, 16 attempts', now 'mask'",
        ):
            now.restore(before.state())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spte": 3}, "spte"),
        ({"step": -1}, "step"),
        ({"step": 10_000}, "step"),
        ({"step": "3"}, "step"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 1.5}, "epoch"),
        ({"length": 9}, "length"),
        ({"seed": 99}, "seed"),
        ({"global_batch": 5}, "global_batch"),
        ({"fingerprint": "another"}, "changed|another|data"),
    ],
)
def test_what_makes_no_sense_is_refused(
    photos: ff.ImageFolder, change: dict[str, Any], text: str
) -> None:
    with feed(photos) as data:
        with pytest.raises(StateError, match=text):
            data.restore(data.state() | change)
        assert data.state()["step"] == 0


@pytest.mark.parametrize("missing", ["epoch", "step", "length"])
def test_what_is_missing_is_named(photos: ff.ImageFolder, missing: str) -> None:
    with feed(photos) as data:
        state = data.state()
        del state[missing]
        with pytest.raises(StateError, match=missing):
            data.restore(state)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"epoch": 0'])
def test_files_that_hold_no_state(photos: ff.ImageFolder, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "feed.json").write_bytes(content)
    with feed(photos) as data, pytest.raises(StateError):
        data.restore(ff.load_state(tmp_path / "feed.json"))


def test_a_state_of_other_photographs(photos: ff.ImageFolder, tmp_path: Path) -> None:
    other = ff.ImageFolder(folder(tmp_path / "other", {"a": 12, "b": 12}, (30, 40)))
    with feed(photos) as before, feed(other) as now:
        with pytest.raises(StateError, match="changed: content of samples"):
            now.restore(before.state())
        now.restore(before.state(), strict=False)


@pytest.mark.slow
@needs("keras")
@needs("tensorflow")
def test_keras_roles_are_not_mixed_up(
    photos: ff.ImageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    def model() -> Any:
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        return model

    with feed(photos) as train, feed(photos, seed=5) as other:
        with pytest.raises(
            ConfigError, match="x and validation_data must be two feeds, got the same feed for both"
        ):
            model().fit(train.to_keras(), validation_data=train.to_keras(), verbose=0)
        backup = ff.keras.backup(other, tmp_path / "backup")
        with pytest.raises(
            ConfigError,
            match=r"this keras.backup saves the position of Feed\(.*, but fit is given Fee",
        ):
            model().fit(train.to_keras(), callbacks=[backup], verbose=0)
        own = ff.keras.backup(train, tmp_path / "own")
        model().fit(train.to_keras(), callbacks=[own], epochs=1, verbose=0)
        assert json.dumps(train.state())
        assert np.isfinite(train.state()["epoch"])
