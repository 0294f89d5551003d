"""What a host thread was doing, told from the name of the call or range that it was inside of."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Calls, RangeKind, Ranges, Trace

__all__ = ["Doing", "call_meanings", "range_meanings"]


class Doing(IntEnum):
    """In the order in which they explain a late launch: the first that covers an instant is the cause."""

    INPUT = 0
    CHECKPOINT = 1
    COMPILE = 2
    LOAD = 3
    ALLOC = 4
    COPY = 5
    SYNC = 6
    HOST_COMM = 7
    LAUNCH = 8
    GC = 9
    GIL = 10
    FRAMEWORK = 11
    PYTHON = 12
    WAITING = 13  # parked until another thread has something for it: that one is asked
    NOTHING = 14  # says nothing about lateness

    @property
    def cause(self) -> Cause:
        return Cause.MODULE_LOAD if self is Doing.LOAD else Cause[self.name]


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_CALLS = (
    (_any("malloc", "free(?!ze)", "hostalloc", "host(un)?register", "mempool", "memcreate", "memmap"), Doing.ALLOC),
    (_any("synchronize", "streamwaitvalue", "eventquery", "streamquery"), Doing.SYNC),
    (_any("linkcreate", "linkcomplete", "nvrtc"), Doing.COMPILE),
    (_any("moduleload|library|funcgetattr|occupancy|ctx|init|streamcreate|eventcreate|peeraccess|propert"), Doing.LOAD),
    (_any("memcpy"), Doing.COPY),
)
_QUEUED_COPY = _any("async", "batch")  # returns at once, unless the host's memory is pageable
_LINE = r"(\(\d+\))?: "  # between file and function, as PyTorch writes Python frames: dataloader.py(521): __next__

_RANGE = r"^(?!\S*\.py\(\d+\): )"  # from here on a whole name, but of no Python frame: those begin with a file's name

# An INPUT or CHECKPOINT name may come from anybody: ranges, operators, Python frames.
_INPUT = _any(
    r"DataLoader\S*__next__",
    r"DataPipe\)?#",
    rf"dataloader\.py{_LINE}(__next__|_next_data|_get_data|_try_get_data)",
    r"dataloader_next\b|\]\.(val|test|predict)_next$",  # PyTorch Lightning
    rf"IteratorGetNext|Iterator::GetNext|OptionalGetValue|iterator_ops\.py{_LINE}(__next__|_next_internal)",
    rf"nvidia/dali/\S*{_LINE}(__next__|next|_get_outputs|share_outputs)\b",
    r"\bDALI\S*(__next__|Iterator)|Dali\w*ShareOutputs|^ShareOutputs$",
    rf"grain/\S*{_LINE}__next__|streaming/\S*dataloader\S*{_LINE}__next__|webdataset/\S*{_LINE}__iter__",
    rf"ffcv/loader/\S*{_LINE}(__next__|run)$|torch_xla/\S*parallel_loader\.py{_LINE}(__next__|next|next_item)$",
    rf"{_RANGE}((wait[-_ ]for[-_ ])?(data|batch|input)[-_ ]?(loading|loader|load|wait|fetch|next|generator)|data)$",
    rf"{_RANGE}wait[-_ ]for[-_ ](data|batch|input)$",
    rf"({_RANGE}|^\S+\.py\(\d+\): )(get|next|fetch|load)[-_ ]?((next|train)[-_ ])?(batch|data)$",
    rf"{_RANGE}data[-_ ]?(iter|loader|loading|time|wait)|^\S*data_?loader\w*\.py{_LINE}(__next__|__getitem__|collate)",
)
_CHECKPOINT = _any(
    rf"torch/serialization\.py{_LINE}(_?save|_legacy_save)|distributed/checkpoint/|orbax|ModelCheckpoint|SaveV2",
    r"checkpoint_?(save|write|manager)|save_?(checkpoint|state|model|pretrained|weights)",
    rf"{_RANGE}(checkpoint(?!\w*(func|seq|wrap|ed))|save(_(?!for_backward)|$))",  # not what trades memory for time
    rf"{_RANGE}(eval|evaluate|evaluation|validate|validation|test_epoch)([_# :.]|$)",
    rf"wandb/|mlflow/|tensorboard/(summary|writer)|SummaryWriter|WriteScalarSummary|{_RANGE}log(ging|_metrics)$",
)
# What compiles, and not what runs the compiled: its frames are open in every step, so functions are named.
_COMPILE = _any(
    r"xla_?compile|PjRt\S*Compile|backend_compile|^Compile(\b|Module)|XLA:\S*Compil|jit_compile",
    rf"\(dynamo_timed\)|Torch-Compiled Region: compile|compile_inner|{_RANGE}\S*inductor\S*compile",
    r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph|bytecode_transformation|variables/|backends/)",
    r"torch/_inductor/(graph|scheduler|lowering|select_algorithm|async_compile|codegen/|fx_passes/)",
    rf"torch/_inductor/(compile_fx|codecache)\.py{_LINE}\w*(compil|codegen|load)",
    rf"torch/_inductor/cudagraph_trees\.py{_LINE}(_record|record_function)$",
    rf"triton_heuristics\.py{_LINE}\w*(precompile|autotune_to|benchmark)|triton/testing\.py{_LINE}do_bench",
    rf"triton/compiler/(code_generator|compiler\.py{_LINE}(compile|make_ir|parse)$)|triton/\S*{_LINE}_do_compile$",
    rf"autotuner\.py{_LINE}(_bench|_profile)|nvrtc|autotun(?!er\.py)|cudnn\S*find",
)
_SYNC = _any(r"block_until_ready|api\.py(\(\d+\))?: try_to_block$|BlockHostUntil(Done|Ready)")
_HOST_COMM = _any(
    r"gloo::?|MPI_(Barrier|Allreduce|Bcast|Wait|Recv|Allgather)|c10d::(barrier|store)|TCPStore|ncclCommInit",
    rf"(dist\S*|distributed_c10d)\.py{_LINE}(barrier|all_gather_object|broadcast_object_list)|init_process_group",
    r"horovod\S*broadcast",
)
_WAITING = _any(
    rf"threading\.py{_LINE}(wait|join|_wait_for_tstate_lock)|queue\.py{_LINE}get|selectors\.py",
    rf"concurrent/futures/\S*{_LINE}(result|wait)|lock\.acquire|WaitForWork",
    r"pthread_cond_\w*wait|pthread_join|sem_\w*wait|futex|epoll_wait|^p?poll$|^select$|__lll_lock_wait",
)
_RANGES = (
    (_INPUT, Doing.INPUT),
    (_CHECKPOINT, Doing.CHECKPOINT),
    (_COMPILE, Doing.COMPILE),
    (_HOST_COMM, Doing.HOST_COMM),
    (_SYNC, Doing.SYNC),
    (_WAITING, Doing.WAITING),
)
_PROFILER_STEP = re.compile(r"^(ProfilerStep[#*]|gpu_user_annotation)")

_RANGE_KINDS = {
    RangeKind.OP: Doing.FRAMEWORK,
    RangeKind.PYTHON: Doing.PYTHON,
    RangeKind.GC: Doing.GC,
    RangeKind.GIL: Doing.GIL,
    RangeKind.COMPILE: Doing.COMPILE,
    RangeKind.NVTX: Doing.FRAMEWORK,
}


def call_meanings(trace: Trace) -> np.ndarray:
    """A Doing per call: uint8, shape (len(calls),). A copy that returns at once is a launch."""
    calls: Calls = trace.calls
    table = np.full(len(trace.names) + 1, Doing.LAUNCH, np.uint8)  # the last is for a name of -1
    for name in np.unique(calls.name):
        table[name] = _of_call(trace.name(int(name)))
    return table[calls.name]


def _of_call(name: str) -> Doing:
    found = next((doing for pattern, doing in _CALLS if pattern.search(name)), Doing.LAUNCH)
    return Doing.LAUNCH if found is Doing.COPY and _QUEUED_COPY.search(name) else found


def range_meanings(trace: Trace, input_range: str = "") -> np.ndarray:
    """A Doing per range: uint8. `input_range` is the user's own pattern for waiting for input.

    Raises ConfigError where the pattern cannot be compiled.
    """
    try:
        own = re.compile(input_range) if input_range else None
    except re.error as error:
        raise ConfigError(f"the pattern of input ranges, {input_range!r}, is no regular expression: {error}") from error
    ranges: Ranges = trace.ranges
    kinds = len(RangeKind)
    key = (ranges.name.astype(np.int64) + 1) * kinds + ranges.kind  # a name of -1 is none
    table = np.full((len(trace.names) + 1) * kinds, Doing.NOTHING, np.uint8)
    for one in np.flatnonzero(np.bincount(key, minlength=1)) if len(key) else ():
        table[one] = _of_range(trace.name(int(one // kinds) - 1), RangeKind(int(one % kinds)), own)
    return table[key]


def _of_range(name: str, kind: RangeKind, own: re.Pattern[str] | None) -> Doing:
    if own is not None and own.search(name):
        return Doing.INPUT
    if kind in (RangeKind.STEP, RangeKind.OTHER) or _PROFILER_STEP.match(name):
        return Doing.NOTHING
    if kind is RangeKind.FEED:
        return Doing.INPUT
    if kind is RangeKind.SYSTEM:
        return Doing.WAITING if _WAITING.search(name) else Doing.NOTHING
    return next((doing for pattern, doing in _RANGES if pattern.search(name)), _RANGE_KINDS[kind])
