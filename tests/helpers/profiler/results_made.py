"""Made-up results of analyses, which reports are tested on.

Sums hold in them as they do in real ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import WORDS, percent
from fastfeed.profiler.model.result import (
    ColdStart,
    DeviceResult,
    FeedResult,
    Gap,
    InputWait,
    PeerWait,
    Period,
    RankResult,
    Remedy,
    Result,
    Share,
    Slices,
    Steps,
    TimeBreakdown,
    Verdict,
)
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.ranks.ranks import late_ranks

BUSY = ("compute", "comm", "h2d", "other", "overhead")
US, MS = 1_000, 1_000_000
HOSTILE = (
    "</script><b>bold</b><script>alert(1)</script>",
    """quotes ' " ` and [bold red]brackets[/] & \\ {braces} $dollar""",
    "имя 名前 🙂 \u202e right to left \x1b[31m red \x00 nul \n second line",
    "void cutlass::Kernel<" + "cutlass::gemm::threadblock::MmaMultistage<float, 128>, " * 80 + ">",
)
THREADS = ("MainThread (4011)", "autograd (4019)")
NAMES = (
    "DataLoader.__next__",
    "aten::convolution",
    "Optimizer.step",
    "cudaStreamSynchronize",
    "cudaMalloc",
)
CHANGE = (
    "Raise num_workers from 4 to 6: a step needs 64 samples in 57 ms, and the loader makes them"
    " in 87."
)
START = 1_687_000_000_123_456_789  # a wall clock, as Kineto has it


def device(
    label: str = "rank 0, GPU 0 (Tesla V100-SXM2-16GB)",
    *,
    steps: int = 24,
    wait: int = 30 * MS,
    kernels: int = 40,
    seed: int = 0,
    index: int = 0,
    rank: int | None = None,
    cold: int = 2,
    names: tuple[str, ...] = NAMES,
    threads: tuple[str, ...] = THREADS,
    charges: tuple[PeerWait, ...] = (),
) -> DeviceResult:
    """One GPU that waits `wait` ns for input in every step, launches `kernels`, and began with
    `cold` slow steps.
    """
    rows, edges = _timeline(np.random.default_rng(seed), steps, wait, kernels, cold)
    length = np.array([row[1] for row in rows], np.int64)
    end = START + np.cumsum(length)
    start = end - length
    kind = np.array([row[0] if isinstance(row[0], Cause) else 0 for row in rows], np.uint8)
    idle = np.array([isinstance(row[0], Cause) for row in rows])
    busy = {
        key: intervals.union(
            intervals.spans(start, end)[[row[0] == key for row in rows]]
            if rows
            else intervals.empty()
        )
        for key in BUSY
    }
    first_of_gap = idle & ~np.concatenate([[False], idle[:-1]])
    slices = Slices(
        start[idle],
        end[idle],
        kind[idle],
        (np.cumsum(first_of_gap) - 1)[idle].astype(np.int32),
        np.array([row[2] for row in rows], np.int32)[idle],
        np.array([row[3] for row in rows], np.int32)[idle],
    )
    waits = intervals.union(
        intervals.spans(start, end + wait // 10)[[row[0] == Cause.INPUT for row in rows]]
        if wait
        else intervals.empty()
    )
    bounds = np.concatenate([[0], end])[edges]
    bounds[0] = START
    spans = np.column_stack([bounds[:-1], bounds[1:]])
    steady = np.arange(steps) >= cold
    whole = period(np.array([[START, end[-1]]]), busy, slices, waits)
    judged = (
        period(intervals.union(spans[steady]), busy, slices, waits) if steady.sum() >= 5 else None
    )
    cold_spans = intervals.union(spans[~steady])
    early = period(cold_spans, busy, slices, waits) if cold else None
    share = (judged or whole).causes.get(Cause.INPUT, 0) / (judged or whole).budget.window
    return DeviceResult(
        label=label,
        trace=0,
        device=index,
        rank=rank,
        first=START,
        last=int(end[-1]),
        whole=whole,
        steady=judged,
        cold=ColdStart(cold, cold_spans, early.budget.idle, early.causes) if early else None,
        steps=Steps(
            spans, tuple(f"ProfilerStep#{i}" for i in range(steps)), "ProfilerStep#N", steady
        ),
        share=Share(
            share,
            share * 0.94,
            share * 1.05,
            share * 1.01,
            share * 1.2,
            1.0 if share > 0.05 else 0.1,
        ),
        slices=slices,
        busy=busy,
        waits=waits,
        worst=_worst(slices, spans, cold, names, threads),
        ops=steps * (kernels + 3),
        launches=steps * (kernels + 2),
        charges=charges,
        comm_wait=sum(charge.ns for charge in charges),
        threads=threads,
        names=names,
    )


def period(
    spans: np.ndarray, busy: dict[str, np.ndarray], slices: Slices, waits: np.ndarray
) -> Period:
    """These spans' budget and causes, by the same slices."""
    held = {key: intervals.measure(intervals.intersect(set_, spans)) for key, set_ in busy.items()}
    mine = intervals.overlap(intervals.spans(slices.start, slices.end), spans)
    causes = {cause: int(mine[slices.cause == cause].sum()) for cause in Cause}
    causes = dict(sorted(((c, ns) for c, ns in causes.items() if ns), key=lambda item: -item[1]))
    total = intervals.measure(intervals.intersect(waits, spans))
    exposed = causes.get(Cause.INPUT, 0)
    return Period(
        spans,
        TimeBreakdown(intervals.measure(spans), **held, idle=sum(causes.values())),
        causes,
        InputWait(
            total,
            exposed,
            total - exposed,
            exposed // 50,
            len(waits),
            int(np.diff(waits).max(initial=0)),
        ),
    )


def _timeline(
    rng: np.random.Generator, steps: int, wait: int, kernels: int, cold: int
) -> tuple[list, list[int]]:
    rows: list[tuple[str | Cause, int, int, int]] = []
    edges = [0]

    def put(kind: str | Cause, mean: float, thread: int = -1, name: int = -1) -> None:
        rows.append((kind, max(1, int(mean * rng.lognormal(0, 0.2))), thread, name))

    for step in range(steps):
        if step < cold:
            put(Cause.MODULE_LOAD, 120 * MS, 0, 1)
            put(Cause.ALLOC, 60 * MS, 0, 4)
        if wait:
            put(Cause.INPUT, wait, 0, 0)
        put(Cause.PYTHON, 180 * US, 0, 2)
        put(Cause.LAUNCH_LATENCY, 6 * US)
        put("h2d", 1.1 * MS)
        for kernel in range(kernels):
            put(Cause.FRAMEWORK, 60 * US, kernel % 2, 1)
            put(Cause.LAUNCH, 12 * US, kernel % 2, 1)
            put(Cause.LAUNCH_LATENCY, 5 * US)
            put("compute", 1.2 * MS)
        put("comm", 2 * MS)
        put(Cause.SYNC, 400 * US, 0, 3)
        put("compute", 1.2 * MS)
        edges.append(len(rows))
    return rows, edges


def _worst(
    slices: Slices, steps: np.ndarray, cold: int, names: tuple[str, ...], threads: tuple[str, ...]
) -> tuple[Gap, ...]:
    length = np.zeros(int(slices.gap[-1]) + 1 if len(slices.gap) else 0, np.int64)
    np.add.at(length, slices.gap, (slices.end - slices.start) * (slices.start >= steps[cold, 0]))
    found = []
    for gap in np.argsort(-length)[:3]:
        mine = np.flatnonzero(slices.gap == gap)
        parts = sorted(
            ((Cause(int(slices.cause[i])), int(slices.end[i] - slices.start[i])) for i in mine),
            key=lambda part: -part[1],
        )
        late = mine[np.argmax(slices.end[mine] - slices.start[mine])]
        found.append(
            Gap(
                int(slices.start[mine[0]]),
                int(slices.end[mine[-1]]),
                dict(parts),
                "Memcpy HtoD (Pageable -> Device)",
                threads[slices.thread[late]] if slices.thread[late] >= 0 else "",
                names[slices.name[late]] if slices.name[late] >= 0 else "",
                f"ProfilerStep#{np.searchsorted(steps[:, 1], slices.end[mine[-1]])}",
                "volta_sgemm_128x64_nn",
            )
        )
    return tuple(found)


def result(*devices: DeviceResult, word: str = "", **more: object) -> Result:
    """An analysis of these devices, with the verdict that fits the worst of them."""
    share = max((one.share for one in devices), key=lambda share: share.value, default=Share(0.0))
    word = word or (
        "severe" if share.value >= 0.2 else "starved" if share.value >= 0.05 else "not_starved"
    )
    judged = devices[0].judged if devices else None
    remedies = []
    for family in ("input", "launch", "sync"):
        causes = {
            c: ns for c, ns in (judged.causes if judged else {}).items() if c.family == family
        }
        x = sum(causes.values()) / judged.budget.window if judged else 0.0
        if x:
            remedies.append(
                Remedy(
                    family,
                    x,
                    x * 80,
                    1 / (1 - x),
                    causes,
                    CHANGE,
                    f"{len(causes)} causes, {x:.1%} of the window.",
                )
            )
    verdict = Verdict(
        word,
        f"The GPU is {WORDS.get(word, word).lower()}: it waits for input {percent(share.value)} of the time.",
        "input",
        share,
        "confirmed",
        (
            "22 of 24 steps wait longer than 5 % of their time for input.",
            "The three longest gaps are inside DataLoader.__next__ on the main thread.",
        ),
        ("3 ms of waiting per step are hidden behind work that was queued and cost nothing.",),
        f"The same run on batches kept in memory should be up to {1 / max(1 - share.value, 0.01):.2f} times as fast; "
        "if it is not, this verdict is wrong.",
        CHANGE,
        "fastfeed profile --steps 50 -- python train.py --batch 64",
        remedies=tuple(remedies),
    )
    origin = Origin(
        "runs/resnet50/worker0.1623143089861.pt.trace.json.gz", "chrome", "Kineto 1.9", START
    )
    return replace(
        Result(
            (origin,),
            verdict,
            tuple(devices),
            notes=("3 lines could not be read and were left out.",),
        ),
        **more,
    )


def one() -> Result:
    return result(device())


def healthy() -> Result:
    made = result(device(wait=0, kernels=60))
    words = "The GPU is busy 94 % of the time and waits for input 0.0 % of it."
    return replace(
        made,
        verdict=replace(
            made.verdict, headline=words, bound="gpu", change="Leave the loader as it is."
        ),
    )


def many(count: int = 8) -> Result:
    """Ranks of which the fourth is late, and the others wait for it in collectives."""
    devices = []
    for rank in range(count):
        late = rank == 3
        charges = (
            ()
            if late
            else (PeerWait("rank 3", Cause.INPUT, 190 * MS), PeerWait("rank 3", None, 20 * MS))
        )
        label = f"rank {rank}, GPU {rank} (NVIDIA H100 80GB HBM3)"
        made = device(
            label, seed=rank, index=rank, rank=rank, wait=(22 if late else 2) * MS, charges=charges
        )
        devices.append(made)
    seen = late_ranks([made.charges for made in devices], {})
    devices = [replace(made, late_rank=late) for made, late in zip(devices, seen, strict=True)]
    ranks = tuple(
        RankResult(
            f"rank {r}",
            r * 1_700,
            960,
            0 if r == 3 else 210 * MS,
            210 * MS * (count - 1) * (r == 3),
        )
        for r in range(count)
    )
    return result(*devices, ranks=ranks, feeds=(feed(),))


def crowded(slices: int = 200_000) -> Result:
    """A trace with this many idle slices."""
    return result(device(steps=200, kernels=slices // 600, wait=5 * MS))


def abstained() -> Result:
    made = result(device(steps=3, cold=0), word="abstained")
    verdict = replace(
        made.verdict,
        headline="This trace cannot carry a verdict.",
        confidence="",
        change="",
        command="",
        refutation="",
        reasons=(
            "Only 41 % of the kernels have a launch in the trace: events were sampled.",
            "3 steps were found; a verdict needs 5.",
        ),
        record="torch.profiler.profile(activities=[CPU, CUDA], with_stack=True), 20 steps after a warm-up of 5",
        remedies=(),
        evidence=(),
    )
    return replace(made, verdict=verdict)


def feed(name: str = "train") -> FeedResult:
    stages = {"read": (4096, 2100 * MS), "decode": (4096, 41_000 * MS), "collate": (64, 320 * MS)}
    return FeedResult("feed-0", name, 0, 64, 9_000 * MS, 6_300 * MS, stages, 8, "decode")


def feed_only() -> Result:
    """A timeline of fastfeed's, and no device."""
    made = result(word="abstained", feeds=(feed(), feed("validate")))
    words = "There is no device activity in these files, so no verdict about a GPU."
    verdict = replace(
        made.verdict,
        headline=words,
        reasons=("No device activity was recorded.",),
        bound="",
        record="fastfeed profile --with nsys -- python train.py",
        confidence="",
    )
    return replace(made, verdict=verdict)


def hostile() -> Result:
    """Names that mean harm to a page, a terminal, or a layout."""
    made = device(HOSTILE[0], names=(*HOSTILE, "x" * 300), threads=(HOSTILE[1], HOSTILE[2]))
    worst = tuple(
        replace(gap, next_op=HOSTILE[3], last_op=HOSTILE[1], step=HOSTILE[2]) for gap in made.worst
    )
    made = replace(
        made, worst=worst, steps=replace(made.steps, labels=(HOSTILE * 6)[: len(made.steps.spans)])
    )
    out = result(made, feeds=(feed(HOSTILE[0]),), notes=HOSTILE)
    return replace(
        out, verdict=replace(out.verdict, headline=HOSTILE[0], evidence=HOSTILE, change=HOSTILE[3])
    )


def hollow() -> Result:
    """A device of which nothing is known but that it is there, next to one whose steps have no
    names.
    """
    nothing, none = np.empty(0, np.int64), intervals.empty()
    blank = Period(none, TimeBreakdown(0, 0, 0, 0, 0, 0, 0), {}, InputWait(0, 0, 0, 0, 0, 0))
    slices = Slices(nothing, nothing, nothing.astype(np.uint8), nothing, nothing, nothing)
    hollow = DeviceResult(
        "",
        0,
        0,
        None,
        START,
        START,
        blank,
        None,
        None,
        Steps(none, (), "", np.empty(0, bool)),
        Share(float("nan")),
        slices,
        {},
        none,
        (),
        0,
        0,
    )
    made = device(steps=8)
    nameless = replace(
        made, names=(), threads=(), steps=replace(made.steps, labels=()), worst=made.worst[:1]
    )
    return result(nameless, hollow)


def empty() -> Result:
    """Nothing at all."""
    blank = Verdict("abstained", "", "", Share(0.0), "", (), (), "", "", "")
    return Result((), blank)


EVERY = {
    "one": one,
    "healthy": healthy,
    "many": many,
    "abstained": abstained,
    "feed_only": feed_only,
    "hostile": hostile,
    "hollow": hollow,
    "empty": empty,
}
