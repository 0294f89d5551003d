"""Activities of host threads, by the name of the call or range that they are in."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import distinct, numbered
from fastfeed.profiler.model.trace import RangeKind, Trace


class Activity(IntEnum):
    """Host activities by precedence: the first that covers an instant is the cause."""

    INPUT = 0
    CHECKPOINT = 1
    COMPILE = 2
    LOAD = 3
    ALLOC = 4
    COPY = 5
    SYNC = 6
    HOST_COMM = 7
    # this one and the next four: long stretches of code without a launch, see host_code/kinds
    INPUT_IN_THREAD = 8
    ENVIRONMENT = 9
    IO = 10
    PROFILER = 11
    HOST_CODE = 12
    LAUNCH = 13
    GC = 14
    GIL = 15
    FRAMEWORK = 16
    PYTHON = 17
    WAITING = 18  # parked until another thread has work for it: that thread decides
    NOTHING = 19  # irrelevant to lateness

    @property
    def cause(self) -> Cause:
        return Cause.MODULE_LOAD if self is Activity.LOAD else Cause[self.name]


INPUT_ACTIVITIES = (Activity.INPUT, Activity.INPUT_IN_THREAD)


def _pattern(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_CALLS = (
    (
        _pattern(
            "malloc",
            "free(?!ze)",
            "hostalloc",
            "host(un)?register",
            "mempool",
            "memcreate",
            "memmap",
        ),
        Activity.ALLOC,
    ),
    (_pattern("synchronize", "streamwaitvalue", "eventquery", "streamquery"), Activity.SYNC),
    (_pattern("linkcreate", "linkcomplete", "nvrtc"), Activity.COMPILE),
    (
        _pattern(
            "moduleload|library|funcgetattr|occupancy|ctx|init|streamcreate|eventcreate|peeraccess|propert"
        ),
        Activity.LOAD,
    ),
    (_pattern("memcpy"), Activity.COPY),
)
_QUEUED_COPY = _pattern("async", "batch")  # returns immediately unless the host memory is pageable
_FRAME = (  # between file and function in PyTorch's Python frames: dataloader.py(521): __next__
    r"(\(\d+\))?: "
)

# matches at the start of a name that is not a Python frame; those start with a file name
_RANGE = r"^(?!\S*\.py\(\d+\): )"

# INPUT and CHECKPOINT names may come from ranges, operators or Python frames.
_INPUT = _pattern(
    r"DataLoader\S*__next__",
    r"DataPipe\)?#",
    rf"dataloader\.py{_FRAME}(__next__|_next_data|_get_data|_try_get_data|_get_iterator|_reset)",
    r"dataloader_next\b|\]\.(val|test|predict)_next$",  # PyTorch Lightning
    rf"IteratorGetNext|Iterator::GetNext|OptionalGetValue|iterator_ops\.py{_FRAME}(__next__|_next_internal)",
    rf"nvidia/dali/\S*{_FRAME}(__next__|next|_get_outputs|share_outputs)\b",
    r"\bDALI\S*(__next__|Iterator)|Dali\w*ShareOutputs|^ShareOutputs$",
    rf"grain/\S*{_FRAME}__next__|streaming/\S*dataloader\S*{_FRAME}__next__|webdataset/\S*{_FRAME}__iter__",
    rf"ffcv/loader/\S*{_FRAME}(__next__|run)$|torch_xla/\S*parallel_loader\.py{_FRAME}(__next__|next|next_item)$",
    rf"{_RANGE}((wait[-_ ]for[-_ ])?(data|batch|input)[-_"
    r" ]?(loading|loader|load|wait|fetch|next|generator)|data)$",
    rf"{_RANGE}wait[-_ ]for[-_ ](data|batch|input)$",
    rf"({_RANGE}|^\S+\.py\(\d+\): )(get|next|fetch|load)[-_ ]?((next|train)[-_ ])?(batch|data)$",
    rf"{_RANGE}data[-_"
    rf" ]?(iter|loader|loading|time|wait)|^\S*data_?loader\w*\.py{_FRAME}(__next__|__getitem__|collate)",
)
_CHECKPOINT = _pattern(
    rf"torch/serialization\.py{_FRAME}(_?save|_legacy_save)|distributed/checkpoint/|orbax|ModelCheckpoint|SaveV2",
    r"checkpoint_?(save|write|manager)|save_?(checkpoint|state|model|pretrained|weights)",
    # not activation checkpointing
    rf"{_RANGE}(checkpoint(?!\w*(func|seq|wrap|ed))|save(_(?!for_backward)|$))",
    rf"{_RANGE}(eval|evaluate|evaluation|validate|validation|test_epoch)([_# :.]|$)",
    rf"wandb/|mlflow/|tensorboard/(summary|writer)|SummaryWriter|WriteScalarSummary|{_RANGE}log(ging|_metrics)$",
)
# Functions that compile, not those that run compiled code: the latter are on the stack in every
# step.
_COMPILE = _pattern(
    r"xla_?compile|PjRt\S*Compile|backend_compile|^Compile(\b|Module)|XLA:\S*Compil|jit_compile",
    rf"\(dynamo_timed\)|Torch-Compiled Region: compile|compile_inner|{_RANGE}\S*inductor\S*compile",
    r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph|bytecode_transformation|variables/|backends/)",
    r"torch/_inductor/(graph|scheduler|lowering|select_algorithm|async_compile|codegen/|fx_passes/)",
    rf"torch/_inductor/(compile_fx|codecache)\.py{_FRAME}\w*(compil|codegen|load)",
    rf"torch/_inductor/cudagraph_trees\.py{_FRAME}(_record|record_function)$",
    rf"triton_heuristics\.py{_FRAME}\w*(precompile|autotune_to|benchmark)|triton/testing\.py{_FRAME}do_bench",
    rf"triton/compiler/(code_generator|compiler\.py{_FRAME}(compile|make_ir|parse)$)|triton/\S*{_FRAME}_do_compile$",
    rf"autotuner\.py{_FRAME}(_bench|_profile)|nvrtc|autotun(?!er\.py)|cudnn\S*find",
)
_SYNC = _pattern(r"block_until_ready|api\.py(\(\d+\))?: try_to_block$|BlockHostUntil(Done|Ready)")
_HOST_COMM = _pattern(
    r"gloo::?|MPI_[A-Z]|c10d::(barrier|store)|TCPStore|ncclCommInit",
    rf"(dist\S*|distributed_c10d)\.py{_FRAME}(barrier|all_gather_object|broadcast_object_list)|init_process_group",
    r"horovod\S*broadcast",
)
_WAITING = _pattern(
    rf"threading\.py{_FRAME}(wait|join|_wait_for_tstate_lock)|queue\.py{_FRAME}get|selectors\.py",
    rf"concurrent/futures/\S*{_FRAME}(result|wait)|lock\.acquire|WaitForWork",
    r"pthread_cond_\w*wait|pthread_join|sem_\w*wait|futex|epoll_wait|^p?poll$|^select$|__lll_lock_wait",
)
_RANGES = (
    (_INPUT, Activity.INPUT),
    (_CHECKPOINT, Activity.CHECKPOINT),
    (_COMPILE, Activity.COMPILE),
    (_HOST_COMM, Activity.HOST_COMM),
    (_SYNC, Activity.SYNC),
    (_WAITING, Activity.WAITING),
)
_PROFILER_STEP = re.compile(r"^(ProfilerStep[#*]|gpu_user_annotation)")

# where the name says nothing; of other kinds NOTHING
_DEFAULTS = {
    RangeKind.FEED: Activity.INPUT,
    RangeKind.OP: Activity.FRAMEWORK,
    RangeKind.PYTHON: Activity.PYTHON,
    RangeKind.GC: Activity.GC,
    RangeKind.GIL: Activity.GIL,
    RangeKind.COMPILE: Activity.COMPILE,
    RangeKind.NVTX: Activity.FRAMEWORK,
}


def call_activities(trace: Trace) -> np.ndarray:
    """An Activity per call: uint8, shape (len(calls),). An asynchronous copy is a launch."""
    # the last entry is for name -1
    table = np.full(len(trace.names) + 1, Activity.LAUNCH, np.uint8)
    for name in distinct(trace.calls.name).tolist():
        table[name] = _classify_call(trace.name(name))
    return table[trace.calls.name]


def _classify_call(name: str) -> Activity:
    activity = next(
        (activity for pattern, activity in _CALLS if pattern.search(name)), Activity.LAUNCH
    )
    return Activity.LAUNCH if activity is Activity.COPY and _QUEUED_COPY.search(name) else activity


def range_activities(trace: Trace, input_range: str = "") -> np.ndarray:
    """An Activity per range: uint8, shape (len(ranges),).

    `input_range` is the user's regular expression for ranges that wait for input. Raises
    ConfigError if it is invalid.
    """
    try:
        user_pattern = re.compile(input_range) if input_range else None
    except re.error as error:
        raise ConfigError(
            f"the pattern of input ranges, {input_range!r}, is not a regular expression: {error}"
        ) from error
    kinds = len(RangeKind)
    key = (trace.ranges.name.astype(np.int64) + 1) * kinds + trace.ranges.kind
    used, number = numbered(key)
    activities = [
        _classify_range(trace.name(name - 1), RangeKind(kind), user_pattern)
        for name, kind in (divmod(code, kinds) for code in used.tolist())
    ]
    return np.array(activities, np.uint8)[number]


def frame_activity(name: str) -> Activity:
    """The activity that a Python frame's name shows, `dataloader.py(521): __next__`."""
    return _classify_range(name, RangeKind.PYTHON, None)


def _classify_range(name: str, kind: RangeKind, user_pattern: re.Pattern[str] | None) -> Activity:
    if user_pattern is not None and user_pattern.search(name):
        return Activity.INPUT
    if kind in (RangeKind.STEP, RangeKind.OTHER) or _PROFILER_STEP.match(name):
        return Activity.NOTHING
    if kind is RangeKind.FEED:
        return Activity.INPUT
    if kind is RangeKind.SYSTEM:
        return Activity.WAITING if _WAITING.search(name) else Activity.NOTHING
    return next(
        (activity for pattern, activity in _RANGES if pattern.search(name)), _DEFAULTS[kind]
    )
