"""Parts of a run that are not steady training: starts of epochs, validation, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fastfeed.profiler.attribution.attribution import (
    Attribution,
    spans_with_cause,
    summarize_period,
)
from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.launches import launch_times
from fastfeed.profiler.model.causes import INPUT_CAUSES
from fastfeed.profiler.model.intervals import (
    clip,
    empty,
    intersect,
    measure,
    overlap,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.result import ColdStart, Period, Phase, Steps
from fastfeed.profiler.model.trace import RangeKind, Trace
from fastfeed.profiler.steps.marks import in_process

_FRAME = r"(\(\d+\))?: "  # between file and function in PyTorch's Python frames
_CREATION = re.compile(  # an iterator of a loader, or its workers, come to life
    rf"dataloader\.py{_FRAME}(_get_iterator|_reset)$|grain/\S*{_FRAME}__iter__$|popen_(fork|spawn_\w+){_FRAME}_launch$"
)
_EVALUATION = re.compile(
    r"^(?!\S*\.py\(\d+\):"
    r" )([\w\[\].]*[\W_])?(eval|evaluate|evaluation|validate|validation|test_epoch)([_# :.]|$)"
    r"|_EvaluationLoop|run_evaluation|\]\.(val|test)_next$"
    rf"|^(?!torch/)\S+\.py{_FRAME}_?(run_)?(evaluat(e|ion)|validat(e|ion)|eval|val)(_(one_)?epoch|_loop)$"
    rf"|^(?!torch/)\S+\.py{_FRAME}_?(run_)?(evaluat(e|ion)|validat(e|ion))$",
    re.I,
)
_TRAINING = re.compile(  # operators, annotations and kernels that only training has
    r"backward|autograd::engine|optimizer|[dw]grad|bprop|multi_tensor_apply|_foreach_add|adam|\bsgd|gradient",
    re.I,
)
_SAVING = re.compile(r"save|checkpoint|serialization|orbax", re.I)
_MIN_ROUNDS = 2  # in a row without training: one may be a batch that was skipped
_MOST = 0.5  # of the rounds train: otherwise names do not tell which
_MIN_FETCHES = 5  # fewer do not tell which are rare
_RARE = 0.34  # of the fetches start an epoch: more are another pattern
_NEGLIGIBLE = 0.01  # of a step


def find_phases(attribution: Attribution, process: int) -> Mapping[str, np.ndarray]:
    """Disjoint sets of spans by kind: "epoch_start", "validation", "checkpoint".

    Rounds go from one fetch of a batch to the next. A fetch that creates an iterator, or that asks
    an exhausted one before the next, starts an epoch. Rounds in a row without what only training
    has are validation, and so are ranges with such names.
    """
    trace = attribution.trace
    host = attribution.host
    thread = host.main_thread(process)
    edges = attribution.edges
    launched = launch_times(trace, attribution.launch, attribution.rows)
    training = _training_times(trace, attribution, process, launched)
    waits = host.activity_spans(thread, Activity.INPUT)
    first = _first_of_fetches(waits, launched)
    rounds = np.append(waits[first, 0], max(edges[1], waits[first[-1:], 0].max(initial=0)))
    evaluated = union(
        _named_evaluation(trace, process, training, launched),
        _rounds_without_training(rounds, training),
    )
    epochs = _epoch_starts(trace, waits, first, process, evaluated)
    rows = host.rows(thread, Activity.CHECKPOINT)
    rows = rows[trace.matches(host.name[rows], _SAVING)]
    saved = union(spans_at(host, rows))
    phases = {
        "epoch_start": subtract(epochs, evaluated),
        "validation": evaluated,
        "checkpoint": subtract(saved, evaluated),
    }
    return {kind: clip(covered, int(edges[0]), int(edges[1])) for kind, covered in phases.items()}


def training_steps(steps: Steps, phases: Mapping[str, np.ndarray]) -> Steps:
    """The steps without validation as steady ones, unless those are the minority."""
    if not len(steps.labels):
        return steps
    length = steps.spans[:, 1] - steps.spans[:, 0]
    trains = steps.steady & (overlap(steps.spans, phases["validation"]) <= _NEGLIGIBLE * length)
    return replace(steps, steady=trains) if 2 * trains.sum() >= steps.steady.sum() else steps


def summarize_phases(
    attribution: Attribution, phases: Mapping[str, np.ndarray], cold: ColdStart | None
) -> tuple[Phase, ...]:
    """Each phase's time by cause, in order of time; includes the warm-up."""
    sets = dict(phases)
    if cold is not None and cold.steps > cold.cut:
        sets["warm_up"] = subtract(cold.spans, union(*phases.values()))
    found = [
        Phase(kind, len(covered), summarize_period(attribution, covered))
        for kind, covered in sets.items()
        if measure(covered)
    ]
    return tuple(sorted(found, key=lambda phase: int(phase.period.spans[0, 0])))


def epoch_metrics(
    attribution: Attribution, phases: Mapping[str, np.ndarray], judged: Period
) -> Mapping[str, float]:
    """Metric `epoch_waits`: share of the judged idle waits for input at starts of epochs."""
    waited = intersect(spans_with_cause(attribution.slices, *INPUT_CAUSES), judged.spans)
    if not measure(waited) or not len(phases["epoch_start"]):
        return {}
    return {"epoch_waits": measure(intersect(waited, phases["epoch_start"])) / measure(waited)}


def _training_times(
    trace: Trace, attribution: Attribution, process: int, launched: np.ndarray
) -> np.ndarray:
    """Sorted times at which work began that only training has: int64."""
    trains = trace.matches(trace.ranges.name, _TRAINING) & in_process(trace, process)
    ops = launched[trace.matches(trace.ops.name[attribution.rows], _TRAINING)]
    return np.sort(np.concatenate([trace.ranges.start[trains], ops]))


def _first_of_fetches(waits: np.ndarray, launched: np.ndarray) -> np.ndarray:
    """Indexes of waits that begin a fetch, with a launch since the wait before: int64."""
    before = np.searchsorted(np.sort(launched), waits[:, 0])
    return np.flatnonzero(np.diff(before, prepend=-1) > 0)


def _epoch_starts(
    trace: Trace, waits: np.ndarray, first: np.ndarray, process: int, evaluated: np.ndarray
) -> np.ndarray:
    """Fetches that create an iterator, or that take more waits than usual."""
    if not len(first):
        return empty()
    count = np.diff(first, append=len(waits))
    fetches = spans(waits[first, 0], waits[first + count - 1, 1])
    creates = trace.matches(trace.ranges.name, _CREATION) & in_process(trace, process)
    has_created = _contain(fetches, np.sort(trace.ranges.start[creates]))
    # of the iterator of validation, which is exhausted
    follows = np.isin(fetches[:, 0], evaluated[:, 1])
    is_long = (count > np.median(count)) & ~follows
    is_rare = len(first) >= _MIN_FETCHES and is_long.mean() <= _RARE
    return fetches[has_created | (is_long & is_rare)]


def _named_evaluation(
    trace: Trace, process: int, training: np.ndarray, launched: np.ndarray
) -> np.ndarray:
    """Ranges named after evaluation that launch work and do not contain training: a set."""
    ranges = trace.ranges
    rows = in_process(trace, process) & trace.matches(ranges.name, _EVALUATION)
    rows &= np.isin(ranges.kind, (RangeKind.NVTX, RangeKind.OP, RangeKind.PYTHON))
    named = spans_at(ranges, rows)
    return union(named[_contain(named, np.sort(launched)) & ~_contain(named, training)])


def _contain(covered: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Mask of spans with one of the sorted times inside: shape (n,)."""
    return np.diff(np.searchsorted(times, covered), axis=1)[:, 0] > 0


def _rounds_without_training(starts: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Rounds in a row, from one of these times to the next, without training: a set."""
    trains = np.diff(np.searchsorted(training, starts)) > 0
    if not len(trains) or trains.mean() < _MOST:
        return empty()
    edges = np.flatnonzero(np.diff(np.concatenate([[True], trains, [True]]).astype(np.int8)))
    begin = edges[::2]
    end = edges[1::2]
    long = end - begin >= _MIN_ROUNDS
    return spans(starts[begin[long]], starts[end[long]])
