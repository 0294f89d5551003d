"""Forward, backward on a second thread, optimizer: the program that scenarios vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import US, Op
from helpers.profiler.simulator.loader import Loader
from helpers.profiler.simulator.machine import Event, Host, Stream

COMPUTE, COPY, COMM = 7, 14, 20  # streams
AUTOGRAD = 9  # thread
BATCH_BYTES = 256 * 224 * 224 * 3
H2D = "Memcpy HtoD (Pinned -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True, slots=True)
class Model:
    layers: int = 8
    kernel: int = 150 * US  # of one forward op; a backward op has two of them
    python: int = 4 * US  # between two operators
    operator: int = 5 * US  # inside an operator, around its launch
    launch: int = 4 * US
    buckets: int = 0  # all-reduces per step


def _nothing(step: int) -> None:
    pass


@dataclass(slots=True)
class Trainer:
    """`before` and `after` run at either end of each step; `copy` brings the batch to the
    device.
    """

    host: Host
    loader: Loader
    model: Model = field(default_factory=Model)
    before: Callable[[int], None] = _nothing
    after: Callable[[int], None] = _nothing
    copy: Callable[[Stream], object] | None = None
    collective: list[Op] = field(default_factory=list)  # the newest one

    def steps(self, count: int) -> Iterator[None]:
        """Run the program.

        It pauses after each collective, until the other ranks have come as far.
        """
        host = self.host
        for number in range(count):
            with host.inside(f"ProfilerStep#{number}", RangeKind.STEP, Cause.PYTHON):
                with host.inside("train.py(31): train_step", RangeKind.PYTHON):
                    self.before(number)
                    self.loader.next(number)
                    host.spend(6 * US)
                    yield from self.step(number)
                    self.after(number)
                    host.spend(10 * US)

    def step(self, number: int) -> Iterator[None]:
        host, compute = self.host, self.host.stream(COMPUTE)
        with host.inside("aten::copy_", RangeKind.OP, Cause.FRAMEWORK):
            if self.copy is not None:
                self.copy(compute)
            else:
                host.launch(
                    compute,
                    H2D,
                    90 * US,
                    Kind.H2D,
                    api="cudaMemcpyAsync",
                    size=BATCH_BYTES,
                    pageable=0,
                )
        with host.inside("model.py(12): forward", RangeKind.PYTHON):
            for layer in range(self.model.layers):
                host.spend(self.model.python)
                self.operator("aten::cudnn_convolution", f"conv_fprop_{layer % 4}", 1)
        with host.inside("torch/_tensor.py(430): backward", RangeKind.PYTHON):
            host.spend(self.model.python)
            with host.on(AUTOGRAD, "pt_autograd_0"):
                yield from self.backward(number)
        with host.inside("Optimizer.step#SGD.step", RangeKind.NVTX, Cause.FRAMEWORK):
            host.spend(self.model.python)
            self.operator("aten::_foreach_add_", "multi_tensor_apply_kernel", 2)

    def backward(self, number: int) -> Iterator[None]:
        model, reduced = self.model, None
        bucket = model.layers // model.buckets if model.buckets else 0
        for layer in range(model.layers):
            self.operator(
                "autograd::engine::evaluate_function: ConvolutionBackward0",
                f"conv_bprop_{layer % 4}",
                2,
            )
            if bucket and layer % bucket == bucket - 1:
                reduced = self.all_reduce(number * model.buckets + layer // bucket)
                yield  # the end of a collective is known when every rank has launched it
                reduced = Event(self.host.stream(COMM).tail, reduced.stream, reduced.corr)
        if reduced is not None:
            self.host.wait_event(self.host.stream(COMPUTE), reduced)

    def operator(self, name: str, kernel: str, kernels: int) -> None:
        host, model = self.host, self.model
        with host.inside(name, RangeKind.OP, Cause.FRAMEWORK):
            host.spend(model.operator)
            for _ in range(kernels):
                host.launch(host.stream(COMPUTE), kernel, model.kernel, takes=model.launch)
            host.spend(model.operator // 3)

    def all_reduce(self, seq: int) -> Event:
        host, comm = self.host, self.host.stream(COMM)
        with host.inside("nccl:all_reduce", RangeKind.NVTX, Cause.FRAMEWORK):
            host.wait_event(comm, host.record(host.stream(COMPUTE)))
            size = 25 << 20
            op = host.launch(
                comm, ALL_REDUCE, 1, Kind.COMM, size=size, group="default_pg", seq=seq, takes=8 * US
            )
            self.collective = [op]
            return host.record(comm)
