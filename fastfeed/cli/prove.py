"""`fastfeed prove -- python train.py`: measures how much of a trainer's step is its input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import MORE, argument, flag, option
from fastfeed.cli.screen.streams import say
from fastfeed.cli.traces import report_files
from fastfeed.errors import ConfigError, ProofError
from fastfeed.printable import plural

if TYPE_CHECKING:
    from fastfeed.cli.screen.streams import Console
    from fastfeed.proof.result import Proof
    from fastfeed.proof.run.ranks import RankScaling
    from fastfeed.proof.run.runner import ProofJob

_LIMIT = re.compile(r"input>(\d+(?:\.\d+)?)%?")
_MAX_RANKS = 1024
# exit codes of --fail-on
EXCEEDED = 3
UNDECIDED = 4


def prove(
    command: Annotated[list[str], argument("COMMAND", "The trainer, with its arguments.")],
    seconds: Annotated[
        float, option("S", "Time to measure, after the first steps.", min=1, max=86400)
    ] = 60.0,
    feed: Annotated[
        str | None,
        option("NAME", "The feed to measure. Default: the first that is iterated.", panel=MORE),
    ] = None,
    cold: Annotated[
        bool, flag("Also measure without the page cache, by dropping the files read.", panel=MORE)
    ] = True,
    ranks: Annotated[
        str | None, option("1,2,4", "Measure with these numbers of ranks; print one table.")
    ] = None,
    html: Annotated[Path | None, option("FILE", "Also write the report as a page.")] = None,
    as_json: Annotated[bool, flag("Print the result as JSON.", "--json")] = False,
    fail_on: Annotated[
        str | None, option("LIMIT", "Such as 'input>5%'. Exit code 3 if exceeded, 4 if undecided.")
    ] = None,
) -> None:
    """Measure which part of a step the input costs.

    Runs a trainer with a Feed or DataLoader on several kinds of input, and ends it when the proof
    is complete. Its weights are meaningless, so saving them raises an error.

    Examples:
        fastfeed prove -- python train.py                       # a minute
        fastfeed prove --html proof.html -- python train.py     # and a page
        fastfeed prove --ranks 1,2,4 -- python train.py         # one table
    """
    from fastfeed.profiler.runner.foreground import unrunnable
    from fastfeed.proof.measure.modes import Mode
    from fastfeed.proof.report import text
    from fastfeed.proof.run.runner import ProofJob, concluded, run

    if math.isnan(seconds):
        raise ConfigError("--seconds must be a number, got nan")
    counts = _counts(ranks)
    limit = _limit(fail_on)
    if html is not None and counts:
        raise ConfigError(
            "--html shows one proof, and --ranks makes a table of several; leave one of them out"
        )
    report_files.check([], html, None, force=False)
    bad = unrunnable(command)
    if bad is not None:
        say(f"fastfeed: {bad[1].replace('fastfeed profile', 'fastfeed prove')}")
        raise typer.Exit(bad[0])
    if counts:
        ends = (Mode.RESIDENT, Mode.WARM, Mode.COLD)
        _several(command, counts, ProofJob(seconds, cold, feed, ends), limit, as_json)
        return
    job = ProofJob(seconds, cold, feed)
    say(
        f"fastfeed prove: {seconds:g} s from the first steps on; the weights of this run are"
        " meaningless"
    )
    outcome = run(command, job)
    proof = concluded(outcome, job)
    try:
        _show(proof, partial(text.render, proof), as_json)
    finally:  # minutes were spent on it
        if html is not None:
            say(report_files.save_page(html, proof.html()))
    _exit(limit, proof.input.low / proof.real.ns, proof.input.high / proof.real.ns)


def _several(
    command: list[str], counts: list[int], job: ProofJob, limit: float | None, as_json: bool
) -> None:
    from fastfeed.proof.run.ranks import RankCount, RankScaling
    from fastfeed.proof.run.runner import concluded, run

    rows: list[RankCount] = []
    try:
        for count in counts:
            ranks = plural(count, "rank")
            say(
                f"fastfeed prove: {ranks}, {job.seconds:g} s; the weights of this run are"
                " meaningless"
            )
            try:
                outcome = run(command, job, count)
                concluded(outcome, job, count)  # says what went wrong
                rows.append(RankCount.of(count, outcome.records))
            except ProofError as error:
                raise ProofError(f"with {ranks}: {error}") from error
    finally:  # minutes were spent on those before
        if rows:
            scaling = RankScaling(tuple(rows))
            _show(scaling, scaling.render, as_json)
    _exit(limit, max(row.wait_low for row in rows), max(row.wait_high for row in rows))


def _show(result: Proof | RankScaling, render: Callable[[Console], None], as_json: bool) -> None:
    with streams.report() as console:
        if as_json:
            print(json.dumps(result.as_dict(), indent=1, allow_nan=False))
        else:
            render(console)


def _exit(limit: float | None, low: float, high: float) -> None:
    """Exit code from the interval: above the limit, below it, or neither."""
    if limit is None or high <= limit:
        return
    if low > limit:
        say(f"fastfeed: the input costs more than {limit:.1%} of a step")
        raise typer.Exit(EXCEEDED)
    say(
        f"fastfeed: whether the input costs more than {limit:.1%} of a step is not decided; measure"
        " for longer"
    )
    raise typer.Exit(UNDECIDED)


def _counts(ranks: str | None) -> list[int]:
    if ranks is None:
        return []
    parts = ranks.split(",")
    if not all(
        re.fullmatch(r"[1-9][0-9]{0,3}", part.strip()) and int(part) <= _MAX_RANKS for part in parts
    ):
        raise ConfigError(
            f"--ranks must be numbers of processes such as 1,2,4,8, up to {_MAX_RANKS}, got"
            f" {ranks!r}"
        )
    return sorted({int(part) for part in parts})


def _limit(fail_on: str | None) -> float | None:
    if fail_on is None:
        return None
    found = _LIMIT.fullmatch(fail_on.replace(" ", ""))
    if found is None or float(found[1]) > 100:
        raise ConfigError(f"--fail-on must be a limit such as 'input>5%', got {fail_on!r}")
    return float(found[1]) / 100
