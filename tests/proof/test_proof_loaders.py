"""`ff.prove` with loaders that are no feeds: a DataLoader, generators, and batches that are put on
a device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import ConfigError, ProofError
from fastfeed.proof.measure import loaders
from fastfeed.proof.measure.loaders import loader_session, on_device
from fastfeed.proof.result import Proof


class Pair(NamedTuple):
    x: Any
    y: Any


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        monkeypatch.setattr(loaders, "steady_ns", lambda: self.ns)

    def spend(self, ms: float) -> None:
        self.ns += round(ms * 1e6)


class Loader:
    """Batches in host memory that take 30 ms each to make, and are copied by the step for 5 ms."""

    num_workers = 0

    def __init__(self, clock: Clock, batches: int) -> None:
        self.clock = clock
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self):
        for number in range(self.batches):
            self.clock.spend(30)
            yield {"x": np.zeros((8, number + 1), np.float32)}


def test_known_costs(monkeypatch):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(loaders, "on_device", lambda batch, device: ("resident", True))

    def step(batch):
        clock.spend(10 if batch == "resident" else 15)

    proof = ff.prove(step, Loader(clock, 50), seconds=10)
    assert {name: part.ms for name, part in proof.parts.items()} == {"copy": 5.0, "loading": 30.0}
    assert (proof.steps["resident"].ms, proof.real.ms, proof.slowest) == (10.0, 45.0, "real")
    assert (proof.input.ms, proof.own_wait, proof.feed["batch"], proof.feed["steps"]) == (
        35.0,
        30 / 45,
        8,
        50,
    )
    assert proof.as_dict()["verdict"] == "it is the input"
    assert sum("began again" in note for note in proof.notes) == 1
    text = str(proof)
    assert "loading" in text and "real batches" in text and "Loader, batch 8; " in text
    assert "waiting for the loader" in proof.html()


def test_a_loader_that_ends(monkeypatch):
    clock = Clock(monkeypatch)

    def step(batch):
        clock.spend(10)

    with pytest.raises(
        ProofError, match=r"the loader ended after 20 batches, .* cannot be iterated again"
    ):
        ff.prove(step, iter(Loader(clock, 20)), seconds=1)
    with pytest.raises(ProofError, match="the loader ended after 0 batches"):
        ff.prove(step, [], seconds=1)
    proof = ff.prove(step, iter(Loader(clock, 300)), seconds=60)  # a few of its rounds
    assert proof.rounds >= 2
    assert [note for note in proof.notes if "rounds were measured" in note]


def test_a_loader_that_does_not_know_its_length(monkeypatch):
    class Abstract(Loader):
        def __len__(self):
            raise NotImplementedError  # as loaders of streams do

    proof = ff.prove(
        lambda batch: clock.spend(10), Abstract(clock := Clock(monkeypatch), 50), seconds=10
    )
    assert proof.feed["steps"] is None


def test_a_class_is_no_loader():
    with pytest.raises(ConfigError, match=r"feed must be a Feed, .* or a loader, got type"):
        ff.prove(print, Loader)


def test_a_data_loader():
    torch = pytest.importorskip("torch")

    dataset = torch.utils.data.TensorDataset(torch.zeros(80, 4), torch.arange(80))
    weight = torch.ones(4, requires_grad=True)

    def step(batch):
        (batch[0] @ weight).sum().backward()

    proof = ff.prove(step, torch.utils.data.DataLoader(dataset, batch_size=4), seconds=1)
    assert list(proof.parts) == ["copy", "loading"]
    assert proof.feed["source"] == "DataLoader"
    assert (proof.feed["batch"], proof.feed["steps"], proof.feed["threads"]) == (4, 20, 0)
    assert proof.input.ns == sum(part.ns for part in proof.parts.values())


def test_tensors_are_put_on_the_device_wherever_they_are():
    torch = pytest.importorskip("torch")
    batch = {"a": [torch.zeros(2), "text"], "b": Pair(torch.zeros(3), np.zeros(1))}
    moved, has_tensors = on_device(batch, "meta")
    assert has_tensors
    assert (moved["a"][0].device.type, moved["b"].x.device.type, moved["a"][1]) == (
        "meta",
        "meta",
        "text",
    )
    assert isinstance(moved["b"].y, np.ndarray)
    assert on_device(batch, None) == (batch, False)
    assert on_device((np.zeros(1), 3), "meta")[1] is False


def test_epochs_that_the_trainer_ends(monkeypatch):
    clock = Clock(monkeypatch)
    loader = Loader(clock, 1000)
    session = loader_session(loader, lambda: iter(loader), 60)
    epochs = 0
    while not session.done:
        for number, _ in enumerate(session.iterate(), 1):
            clock.spend(10)
            if number == 40:
                break
        clock.spend(5000)  # validation, which is in no block
        epochs += 1
    assert epochs > 3
    proof = Proof.of(session.record)
    assert proof.parts["loading"].ms == 30.0
    assert proof.block_steps + 3 < 40


def test_epochs_that_are_too_short(monkeypatch):
    clock = Clock(monkeypatch)
    loader = Loader(clock, 1000)
    session = loader_session(loader, lambda: iter(loader), 60)
    with pytest.raises(
        ProofError, match="takes 5 batches in a row from its loader, and a proof needs 9"
    ):
        for _ in range(20):
            for number, _batch in enumerate(session.iterate(), 1):
                clock.spend(10)
                if number == 5:
                    break
