"""The loader of `to_torch` in the hands of trainers: skipped, restored, wrapped, dealt out twice."""

from __future__ import annotations

import gc
import importlib
import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.needs import LazyModule, needs

import fastfeed as ff
from fastfeed.errors import ConfigError, StateError

torch = LazyModule("torch")
accelerate = LazyModule("accelerate")
data_loader = LazyModule("accelerate.data_loader")
pytestmark = needs("torch")

IMAGES = np.random.default_rng(0).integers(0, 256, (44, 4, 4, 3), dtype=np.uint8)
STEPS = 5


def feed(**options):
    source = ff.Arrays(IMAGES, np.arange(44))
    return ff.Feed(source, [ff.ToFloat(), ff.ToLayout("CHW")], **{"batch": 8, "seed": 3, **options})


def labels(batches):
    return [batch[1].tolist() for batch in batches]


@pytest.fixture(scope="module")
def pure():
    """Labels of each step of three epochs."""
    with feed() as data:
        return [[batch.labels.tolist() for batch in data.batches(epoch)] for epoch in range(3)]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_its_parts_are_those_of_a_data_loader(size, tail):
    world = ff.World(size - 1, size, size - 1, size)
    with feed(tail=tail, world=world) as data:
        loader = data.to_torch("cpu")
        assert len(loader.dataset) == 44
        assert loader.batch_size == 8 and loader.drop_last == (tail == "drop")
        assert len(loader.batch_sampler) == len(loader)
        ids = list(loader.sampler)
        assert ids == list(itertools.chain(*labels(loader)))
        assert len(ids) == len(loader.sampler)
        assert list(loader.sampler) != ids  # of the next epoch


def test_set_epoch_begins_that_epoch_and_keeps_a_position_within_it(pure):
    with feed() as data:
        loader = data.to_torch("cpu")
        loader.set_epoch(1)
        assert labels(loader) == pure[1]
        assert labels(loader) == pure[2]
        loader.sampler.set_epoch(1)
        state = None
        for _ in itertools.islice(loader, 2):
            state = loader.state_dict()
        loader.batch_sampler.set_epoch(1)  # left early, and again from its beginning
        assert labels(loader) == pure[1]
        loader.load_state_dict(state)
        loader.set_epoch(1)
        assert labels(loader) == pure[1][2:]
        loader.load_state_dict(state)
        loader.set_epoch(2)
        assert labels(loader) == pure[2]


def test_an_epoch_before_that_of_seek_is_refused_and_of_a_checkpoint_kept(pure):
    with feed() as data:
        loader = data.to_torch("cpu")
        data.seek(1, 3)
        with pytest.raises(
            ConfigError,
            match=r"begins at epoch 0, but .* to epoch 1, step 3; .*its own: feed.seek\(0\)",
        ):
            loader.set_epoch(0)
        state = data.state()
        loader.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="begins at epoch 0 with a loader restored at"):
            loader.set_epoch(0)
        assert labels(loader) == pure[1][3:]


def test_a_checkpoint_of_another_feed_is_refused():
    with feed() as data, feed(seed=4) as other:
        with pytest.raises(StateError, match="seed"):
            data.to_torch("cpu").load_state_dict(other.to_torch("cpu").state_dict())


@needs("accelerate")
def test_skipped_batches_are_not_read(pure):
    with feed() as data:
        loader = data.to_torch("cpu")
        for epoch in range(2):
            skipped = data_loader.skip_first_batches(loader, 3)
            skipped.batch_sampler.batch_sampler.set_epoch(epoch)  # as Transformers does
            assert len(skipped) == 2
            assert labels(skipped) == pure[epoch][3:]
            assert data.state()["epoch"] == epoch + 1
        assert data.stats().batches == 4
        assert labels(loader) == pure[2]


@needs("accelerate")
def test_batches_are_skipped_once_if_the_position_was_restored_too(pure):
    with feed() as data:
        loader = data.to_torch("cpu")
        data.seek(1, 3)
        assert labels(data_loader.skip_first_batches(loader, 3)) == pure[1][3:]
        data.seek(1, 3)
        with pytest.raises(ConfigError, match="begins at epoch 1, step 2, but restore"):
            labels(data_loader.skip_first_batches(loader, 2))


@needs("accelerate")
def test_a_skipped_epoch_that_is_left_lets_go_of_its_batches():
    accelerator = accelerate.Accelerator(cpu=True)
    with feed() as data:
        loader = data.to_torch("cpu")
        batches = iter(data_loader.skip_first_batches(loader, 1))
        next(batches)
        assert accelerator.gradient_state.active_dataloader is loader
        del batches
        assert accelerator.gradient_state.active_dataloader is None


@needs("accelerate")
def test_accelerate_leaves_the_loader_as_it_is_and_saves_its_position(tmp_path, pure):
    with feed() as data, feed() as fresh:
        for step, made in enumerate((data, fresh)):
            loader = made.to_torch("cpu")
            accelerator = accelerate.Accelerator(cpu=True)
            assert accelerator.prepare(loader) is loader
            assert accelerator.prepare_data_loader(loader) is loader
            if step:
                accelerator.load_state(tmp_path)
                assert labels(loader) == pure[0][2:]
            for _ in itertools.islice(loader, 2):
                pass
            if not step:
                accelerator.save_state(tmp_path)


@needs("accelerate")
def test_accumulated_gradients_are_applied_where_an_epoch_ends():
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = torch.nn.Linear(1, 1)
    with feed() as data:
        loader = data.to_torch("cpu")
        for _ in range(2):
            syncs = []
            for _ in loader:
                with accelerator.accumulate(model):
                    syncs.append(accelerator.sync_gradients)
            assert syncs == [False, False, True, False, True]
        assert not accelerator.gradient_state.in_dataloader


def test_an_accelerate_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", SimpleNamespace(__version__="0.12.0"))
    kept = SimpleNamespace(_shared_state={})
    monkeypatch.setitem(sys.modules, "accelerate.state", SimpleNamespace(AcceleratorState=kept))
    with feed() as data:
        assert len(list(data.to_torch("cpu"))) == 5, "it was only imported"
        kept._shared_state["device"] = "cpu"
        with pytest.raises(ImportError, match=r"Accelerate 0.12.0 does not .*'accelerate>=1.1'"):
            next(iter(data.to_torch("cpu")))


@pytest.mark.parametrize("size", [1, 3])
def test_accumulated_gradients_of_unequal_batches_are_those_of_the_mean(size):
    """Two groups of an epoch, the second with the incomplete last batch."""
    group = 4
    model = torch.nn.Linear(48, 1)
    with feed(batch=8, tail="pad", shuffle=False) as data:
        epoch = [images.flatten(1) for images, _ in data.to_torch("cpu")]
    wanted = [
        torch.autograd.grad(model(torch.cat(part)).square().mean(), model.weight)[0]
        for part in (epoch[:group], epoch[group:])
    ]
    gradients = [0, 0]
    for rank in range(size):
        world = ff.World(rank, size, rank, size)
        with feed(global_batch=8, batch=None, tail="pad", shuffle=False, world=world) as data:
            for step, (images, _) in enumerate(data.to_torch("cpu")):
                part = range(step - step % group, min(step - step % group + group, len(data)))
                count = sum(map(data.plan.count, part))
                loss = model(images.flatten(1)).square().sum() / count
                gradients[step // group] += torch.autograd.grad(loss, model.weight)[0]
    for found, gradient in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, gradient)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # as a single process wants it
def test_a_distributed_checkpoint_holds_the_position(tmp_path, pure):
    """Of `torch.distributed.checkpoint`, which finds state_dict and load_state_dict by itself."""
    checkpoint = importlib.import_module("torch.distributed.checkpoint")
    with feed() as data, feed(batch=None, global_batch=8, world=ff.World(1, 2, 1, 2)) as other:
        loader = data.to_torch("cpu")
        for _ in itertools.islice(loader, 3):
            pass
        model = torch.nn.Linear(1, 1)
        state = {"model": model.state_dict(), "data": loader}
        checkpoint.save(state, checkpoint_id=tmp_path, no_dist=True)
        again = other.to_torch("cpu")
        checkpoint.load({"data": again}, checkpoint_id=tmp_path, no_dist=True)
        assert labels(again) == [step[4:] for step in pure[0][3:]]


@needs("torchdata")
@pytest.mark.parametrize("mapped", [False, True])
def test_a_node_of_torchdata_resumes_by_the_position(mapped, pure):
    nodes = importlib.import_module("torchdata.nodes")

    def chain(loader):
        node = nodes.IterableWrapper(loader)
        return nodes.Loader(nodes.ParallelMapper(node, tuple, num_workers=2) if mapped else node)

    with feed() as data, feed() as fresh:
        first, again = (chain(made.to_torch("cpu")) for made in (data, fresh))
        assert labels(first) == pure[0]
        batches = iter(first)
        assert labels(itertools.islice(batches, 2)) == pure[1][:2]
        again.load_state_dict(first.state_dict())
        assert labels(again) == pure[1][2:]
        assert labels(again) == pure[2]
        assert fresh.stats().batches == 3 + STEPS


def test_a_compiled_model_is_compiled_once():
    counter = importlib.import_module("torch._dynamo.testing").CompileCounter()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 1))
    compiled = torch.compile(model, backend=counter)
    with feed() as data:
        loader = data.to_torch("cpu")
        for images, _ in itertools.chain(loader, loader):
            compiled(images).mean().backward()
    assert counter.frame_count == 1


def dealt_out(loader):
    return data_loader.prepare_data_loader(loader, num_processes=2, process_index=1)


def around(loader, **options):
    options = {"batch_sampler": loader.batch_sampler, **options}
    return torch.utils.data.DataLoader(loader.dataset, collate_fn=loader.collate_fn, **options)


def shuffled(loader):
    return torch.utils.data.DataLoader(loader.dataset, batch_size=4, shuffle=True)


def split(loader):
    sampler = torch.utils.data.DistributedSampler(loader.dataset, num_replicas=2, rank=0)
    return torch.utils.data.DataLoader(loader.dataset, sampler=sampler)


MISUSE = [
    pytest.param(dealt_out, "those of this rank already", marks=needs("accelerate")),
    (shuffled, "no samples by index, got .*: it has shuffled them"),
    (split, "iterate what feed.to_torch() returned, without a DataLoader"),
    (lambda x: x.worker_init_fn, "prepare_data_loader of Ray Train would .*; leave it out"),
    (lambda x: around(x, batch_sampler=list(x.batch_sampler)[::2]), "step 2 where 1 comes next"),
    pytest.param(  # PyTorch waits five seconds for the worker
        lambda x: around(x, num_workers=1), "pass num_workers=0", marks=pytest.mark.slow
    ),
    (lambda x: around(x, num_workers=1, multiprocessing_context="spawn"), "pass num_workers=0"),
]


@pytest.mark.parametrize(("wrap", "words"), MISUSE)
def test_a_second_shuffle_or_split_and_workers_are_refused(wrap, words):
    with feed() as data:
        with pytest.raises(ConfigError) as caught:
            for _ in wrap(data.to_torch("cpu")):
                pass
        text = str(caught.value)
        del caught
        gc.collect()  # the worker ends with the frames of the error
        assert all(part in text for part in words.split(".*"))
