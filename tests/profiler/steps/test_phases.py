"""Parts of a run: names and patterns that show validation and starts of epochs, and others."""

from __future__ import annotations

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import RangeKind

MS = 1_000_000
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


class Program:
    """Batches in sequence: 4 ms of waiting, 10 ms of work, and a backward pass if it trains."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        self.now = 0
        self.step = 0

    def wait(self, ns: int = 4 * MS, name: str = NEXT, kind: RangeKind = RangeKind.NVTX) -> None:
        self.builder.range(self.now, self.now + ns, name, kind)
        self.now += ns

    def batch(self, *, trains: bool = True, waits: int = 4 * MS) -> None:
        start = self.now
        self.wait(waits)
        self.builder.op(self.now + 1, self.now + 5 * MS, (self.now, self.now + 1), name="gemm")
        if trains:
            at = self.now + 5 * MS
            self.builder.range(
                at, at + 1000, "autograd::engine::evaluate_function: AddBackward0", RangeKind.OP
            )
            self.builder.op(at + 1, at + 5 * MS, (at, at + 1), name="gemm")
        self.now += 10 * MS
        if trains:
            self.builder.range(start, self.now, f"ProfilerStep#{self.step}", RangeKind.STEP)
            self.step += 1

    def result(self) -> DeviceResult:
        (device,) = analyze([self.builder.trace()]).devices
        return device

    def phases(self) -> dict[str, list[list[int]]]:
        return {phase.kind: phase.period.spans.tolist() for phase in self.result().phases}


def run(batches: int = 8) -> Program:
    program = Program()
    for _ in range(batches):
        program.batch()
    return program


@pytest.mark.parametrize(
    ("name", "kind"),
    (
        ("evaluate", RangeKind.NVTX),
        ("validation_epoch", RangeKind.NVTX),
        ("[pl][profile]run_evaluation", RangeKind.NVTX),
        ("train.py(88): evaluate", RangeKind.PYTHON),
        ("transformers/trainer.py(4050): evaluation_loop", RangeKind.PYTHON),
    ),
)
def test_a_range_named_after_evaluation(name: str, kind: RangeKind):
    program = run()
    start = program.now
    program.batch(trains=False)  # a single one, which no pattern tells
    program.builder.range(start, program.now, name, kind)
    end = program.now
    for _ in range(4):
        program.batch()
    assert program.phases()["validation"] == [[start, end]]


@pytest.mark.parametrize(
    ("name", "kind"),
    (
        ("model.eval", RangeKind.OP),
        ("torch/nn/modules/module.py(2800): eval", RangeKind.PYTHON),
        ("pydantic/main.py(700): validate_python", RangeKind.PYTHON),
        ("train_and_evaluate", RangeKind.NVTX),
    ),
)
def test_names_that_are_no_validation(name: str, kind: RangeKind):
    program = run()
    program.builder.range(program.now, program.now + 1, name, kind)
    for _ in range(4):
        program.batch()
    assert "validation" not in program.phases()


def test_a_range_around_training_is_no_validation():
    program = run(12)
    program.builder.range(0, program.now, "evaluate", RangeKind.NVTX)
    assert "validation" not in program.phases()
    assert program.result().steps.steady.sum() == 12


def test_batches_in_a_row_without_a_backward_pass():
    program = run()
    start = program.now
    for _ in range(3):
        program.batch(trains=False, waits=30 * MS)
    end = program.now
    for _ in range(8):
        program.batch()
    device = program.result()
    assert [phase.period.spans.tolist() for phase in device.phases] == [[[start, end]]]
    assert device.share.value == pytest.approx(4 / 14, abs=0.001)
    assert device.steps.steady.sum() == 15, "all but the one that validation follows"


def test_one_batch_without_a_backward_pass_is_part_of_training():
    program = run()
    program.batch(trains=False)
    for _ in range(8):
        program.batch()
    assert program.phases() == {}


def test_inference_has_no_validation():
    program = Program()
    for _ in range(12):
        program.batch(trains=False)
    assert program.phases() == {}


def test_an_exhausted_iterator_is_asked_before_the_next():
    program = run()
    start = program.now
    program.wait(1 * MS)
    program.now += 1 * MS  # workers start, which is not recorded
    program.batch(waits=20 * MS)
    for _ in range(7):
        program.batch()
    assert program.phases()["epoch_start"] == [[start, start + 22 * MS]]


def test_two_loaders_for_each_batch_are_no_epochs():
    program = Program()
    for _ in range(12):
        program.wait(1 * MS)
        program.now += 1000
        program.batch()
    assert program.phases() == {}


def test_the_creation_of_an_iterator_starts_an_epoch():
    program = run()
    start = program.now
    program.wait(6 * MS, "torch/utils/data/dataloader.py(433): _get_iterator", RangeKind.PYTHON)
    program.batch()
    for _ in range(4):
        program.batch()
    assert program.phases()["epoch_start"] == [[start, start + 10 * MS]]


def test_a_checkpoint_is_a_phase_and_a_log_is_none():
    program = run()
    start = program.now
    program.wait(50 * MS, "torch/serialization.py(850): save", RangeKind.PYTHON)
    program.batch()
    program.wait(5 * MS, "wandb/sdk/wandb_run.py(1): log", RangeKind.PYTHON)
    program.batch()
    assert program.phases()["checkpoint"] == [[start, start + 50 * MS]]
