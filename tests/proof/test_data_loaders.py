"""An unchanged PyTorch trainer with a DataLoader under `fastfeed prove`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from helpers.needs import LazyModule, needs

from fastfeed.errors import ProofError
from fastfeed.proof.measure import loaders
from fastfeed.proof.measure.block_sizes import BlockSizes
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.result import Proof
from fastfeed.proof.run import data_loaders, runner, trainer
from fastfeed.proof.run.data_loaders import LoaderChoice, count_steps, watch_loaders
from fastfeed.proof.run.runner import ProofJob, concluded, run

torch = LazyModule("torch")
pytestmark = needs("torch")

TRAINER = """
import torch
from torch.utils.data import DataLoader, TensorDataset

train = DataLoader(TensorDataset(torch.ones(40, 2)), batch_size=4)
weight = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(100_000):
    for (batch,) in train:
        (batch @ weight).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job whose hooks are in this process; returns how to read what was measured."""
    monkeypatch.setattr(
        torch.utils.data.DataLoader, "__iter__", torch.utils.data.DataLoader.__iter__
    )
    monkeypatch.setattr(trainer, "_run", [])
    monkeypatch.setattr(trainer, "refuse_loaded", lambda: None)
    monkeypatch.setattr(loaders, "choose", lambda *_: BlockSizes(rounds=4, warmup=3, steps=20))
    monkeypatch.setenv("FASTFEED_PROVE", str(tmp_path))
    trainer.write_job(tmp_path, ProofJob(seconds=1.0))
    choice = LoaderChoice()
    watch_loaders(sys.modules["torch.utils.data.dataloader"], choice)
    handle = count_steps(sys.modules["torch.optim.optimizer"], choice)
    yield lambda: ProofRecord.from_dict(json.loads((tmp_path / trainer.record_name(0)).read_text()))
    handle.remove()


class Loop:
    """A loop that trains on some batches and validates on others."""

    def __init__(self) -> None:
        self.data = torch.utils.data.TensorDataset(torch.arange(40.0))
        self.train = torch.utils.data.DataLoader(self.data, batch_size=4)
        self.validation = torch.utils.data.DataLoader(self.data, batch_size=8)
        self.weight = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)

    def step(self, batch) -> None:
        (batch * self.weight).sum().backward()
        self.optimizer.step()

    def validate(self) -> list[int]:
        return [len(batch) for (batch,) in self.validation]


def test_the_loader_of_the_training_loop_is_measured(job):
    loop = Loop()
    seen = []
    with pytest.raises(trainer.ProofDone):
        for _ in range(100_000):
            assert loop.validate() == [8] * 5
            for number, (batch,) in enumerate(loop.train):
                seen.append(batch)
                loop.step(batch)
                if number == 30:
                    break
    proof = Proof.of(job())
    assert list(proof.parts) == ["copy", "loading"]
    assert (proof.feed["source"], proof.feed["batch"], proof.feed["steps"]) == ("DataLoader", 4, 10)
    assert sorted(batch[0].item() for batch in seen[:10]) == list(
        range(0, 40, 4)
    )  # the epoch that was under way
    ids = [id(batch) for batch in seen]
    assert max(map(ids.count, set(ids))) > 90  # the resident one


def test_a_loader_without_an_optimizer_is_left_alone(job):
    loop = Loop()
    assert loop.validate() == [8] * 5
    with pytest.raises(FileNotFoundError):
        job()


def test_a_step_on_no_batch_of_a_loader(job):
    loop = Loop()
    loop.step(torch.ones(4))
    assert sum(1 for _ in loop.train) == 10


def test_a_named_feed_is_asked_for(job, tmp_path):
    trainer.write_job(tmp_path, ProofJob(feed="train"))
    loop = Loop()
    for (batch,) in loop.train:
        loop.step(batch)
    assert sum(1 for _ in loop.train) == 10


@pytest.mark.slow
def test_a_process_of_its_own(tmp_path):
    path = Path(tmp_path, "train.py")
    path.write_text(TRAINER)
    job = ProofJob(seconds=1.0)
    proof = concluded(run([sys.executable, str(path)], job), job)
    assert proof.feed["source"] == "DataLoader"


def test_the_functions_exist():
    for function in data_loaders.AFTER_IMPORT.values():
        module, name = function.split(":")
        assert callable(getattr(sys.modules[module], name))


def test_a_loop_that_cannot_be_intercepted(monkeypatch, capfd):
    monkeypatch.setattr(runner, "_SILENT_S", 0.0)
    job = ProofJob(seconds=1.0)
    outcome = run([sys.executable, "-c", "for batch in (n for n in range(9)): pass"], job)
    advice = r"such as JAX's over a generator, are measured by ff\.prove\(step, loader\)"
    with pytest.raises(ProofError, match=advice):
        concluded(outcome, job)
    assert re.search(advice, capfd.readouterr().err)
