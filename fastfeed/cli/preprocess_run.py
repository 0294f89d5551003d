"""`fastfeed preprocess SRC DST`, `resume` and `retry`: photographs into shards, or the shards that are missing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fastfeed.cli import preprocess_options as o
from fastfeed.errors import ConfigError, FastfeedError, SourceError, TargetError, TooManyFailures

if TYPE_CHECKING:
    from fastfeed.preprocess.recipe import Recipe
    from fastfeed.preprocess.report import Progress, Report

__all__ = ["FULL", "STOPPED", "TOO_BAD", "WORDS", "resume", "retry", "run"]

TOO_BAD, FULL, STOPPED, ENDED = 3, 4, 130, 143  # exit codes
WORDS = "fastfeed.preprocess.words"  # what stands behind `fastfeed preprocess`, in the context's meta

_SECRET = re.compile(r"^((?:--[\w-]+=)?[\w.-]*(?:secret|token|passw|credential|key)[\w.-]*=).*$", re.I | re.S)
_SHOWN = 3  # bad photographs


class _Ended(KeyboardInterrupt):
    """SIGTERM."""


@o.at_work
def run(
    ctx: typer.Context,
    src: o.Source,
    dst: o.Destination,
    size: o.Size = "512",
    mode: o.Mode = "short",
    filter: o.Filter = "lanczos",
    enlarge: o.Enlarge = False,
    buckets: o.Buckets = "",
    matte: o.Matte = "#ffffff",
    fill: o.Fill = "#000000",
    image_format: o.ImageFormat = "jpeg",
    quality: o.Quality = 90,
    subsampling: o.Subsampling = "4:2:0",
    keep_small: o.KeepSmall = False,
    format: o.Format = "webdataset",
    shard_samples: o.ShardSamples = 1000,
    shuffle: o.Shuffle = None,
    val: o.Val = 0.0,
    split_seed: o.SplitSeed = 0,
    split_by: o.SplitBy = "looks",
    min_side: o.MinSide = 1,
    max_aspect: o.MaxAspect = 0.0,
    only_formats: o.OnlyFormats = "",
    max_pixels: o.MaxPixels = 300_000_000,
    dedupe: o.Dedupe = "none",
    distance: o.Distance = 4,
    *,
    dry_run: o.DryRun = False,
) -> None:
    """Photographs into training shards. Broken off at any moment, the same command goes on; SRC is only read."""
    recipe = o.recipe_of(ctx.params)
    if dry_run:
        from fastfeed.cli.preprocess_dry_run import dry_run as only_look

        only_look(src, dst, recipe, ctx.params)
        return
    _go(ctx, src, dst, recipe)


@o.at_work
def resume(
    ctx: typer.Context,
    places: o.Places,
) -> None:
    """Go on with a job: the recipe is in its plan. What the source needs to be opened has to be said again."""
    src, dst, recipe = _planned(places, ctx.params)
    _go(ctx, src, dst, recipe)


@o.at_work
def retry(
    ctx: typer.Context,
    places: o.Places,
    reason: Annotated[str, typer.Option(help="Reasons, such as io_error,timeout.", metavar="NAMES")],
) -> None:
    """Make shards anew that have bad photographs of these reasons, and those that are missing."""
    from fastfeed.preprocess.record import REASONS

    reasons = tuple(name.strip() for name in reason.split(",") if name.strip())
    unknown = [name for name in reasons if name not in REASONS]
    if unknown or not reasons:
        raise ConfigError(f"--reason must be of {', '.join(REASONS)}, got {', '.join(unknown) or repr(reason)}")
    src, dst, recipe = _planned(places, ctx.params)
    _go(ctx, src, dst, recipe, reasons)


def command(words: Sequence[str]) -> str:
    """The command line, to be pasted into a shell; values of options that look like secrets are left out."""
    return shlex.join(["fastfeed", "preprocess", *(_SECRET.sub(r"\1...", word) for word in words)])


def _planned(places: Sequence[str], given: Mapping[str, Any]) -> tuple[str, str, Recipe]:
    """SRC, DST and what to make, where DST holds a job."""
    from fastfeed.preprocess.state import load_plan
    from fastfeed.preprocess.targets.target import open_target
    from fastfeed.storage.byte_range import is_local

    if len(places) > 2:
        raise ConfigError(f"SRC and DST, or DST alone, got {len(places)} places: {' '.join(places)}")
    dst = places[-1]
    plan = load_plan(open_target(dst, o.target_options(given), writes=False))
    if plan is None:
        raise ConfigError(f"{dst} holds no job: begin one with fastfeed preprocess SRC {shlex.quote(dst)}")
    if len(places) == 1 and is_local(plan.source) and not glob(plan.source) and not os.path.exists(plan.source):
        raise ConfigError(f"{plan.source}, the source in the plan, is not to be found from here: put SRC before {dst}")
    return (places[0] if len(places) == 2 else plan.source), dst, plan.recipe


def _go(ctx: typer.Context, src: str, dst: str, recipe: Recipe, reasons: Collection[str] = ()) -> None:
    from fastfeed.preprocess.job import run as work
    from fastfeed.preprocess.reports.progress import show_progress
    from fastfeed.preprocess.targets.overlap import check_overlap

    given, errors = ctx.params, Console(stderr=True, emoji=False)
    options, source = o.target_options(given), o.opener(src, given)
    part, limit, engine = o.part_of(given["part"]), o.limit_of(given["max_bad"]), o.engine_of(given["ray"])
    check_overlap(src, dst)
    begun = False
    try:
        with _ended(), show_progress(errors, given["json_log"]) as on_progress:

            def listen(now: Progress) -> None:
                nonlocal begun
                begun = True
                on_progress(now)

            report = work(
                source, dst, recipe, engine=engine, workers=given["workers"], memory=given["memory"], max_bad=limit,
                part=part, timeout_s=given["timeout"], retry=reasons, target_storage=options, on_progress=listen,
            )  # fmt: skip
    except KeyboardInterrupt as error:
        raise _stop(errors, ctx, "stopped", ENDED if isinstance(error, _Ended) else STOPPED) from None
    except TooManyFailures as error:
        raise _stop(errors, ctx, str(error), TOO_BAD) from None
    except ConfigError:
        raise
    except (TargetError, OSError) as error:
        if isinstance(error, SourceError) and not begun:
            raise
        raise _stop(errors, ctx, str(error), FULL) from None
    except FastfeedError as error:
        if not begun:
            raise
        raise _stop(errors, ctx, str(error), FULL) from None
    _say(report, dst, part, as_json=given["as_json"])


def _stop(errors: Console, ctx: typer.Context, why: str, code: int) -> typer.Exit:
    say = _plainly(errors)
    say(f"fastfeed: {why}")
    limit = ", with a larger --max-bad" if code == TOO_BAD else ""
    kept = "" if "finished shards are kept" in why else "finished shards are kept; "
    say(f"{kept}to go on{limit}:\n  {command(ctx.meta.get(WORDS, []))}")
    return typer.Exit(code)


def _say(report: Report, dst: str, part: tuple[int, int] | None, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_document(report)))
        return
    say, place = _plainly(Console(soft_wrap=True, emoji=False)), shlex.quote(dst)
    say(str(report))
    for bad in report.bad[:_SHOWN]:
        say(f"    {bad}")
    if len(report.bad) > _SHOWN:
        say(f"    and {len(report.bad) - _SHOWN:,} more" + (f", all in {dst}/bad.jsonl" if report.complete else ""))
    for note in report.notes[:_SHOWN]:
        say(f"  of the source: {note}")
    if len(report.notes) > _SHOWN:
        say(f"  of the source: {len(report.notes) - _SHOWN:,} more remarks, in the report of --json")
    from fastfeed.faults import TRANSIENT
    from fastfeed.preprocess.reports.preview import DUPLICATES

    if any(why.startswith("duplicate") for why in report.left_out):
        say(f"  duplicates, as pictures: {dst.rstrip('/')}/{DUPLICATES}")
    if again := sorted(TRANSIENT & report.reasons.keys()):
        say(f"  some may work now:  fastfeed preprocess retry {place} --reason {','.join(again)}")
    if not report.complete:
        others = f"; part {part[0]}/{part[1]} is done" if part else ""
        say(f"  {report.shards - report.shards_done:,} shards are not done yet{others}")
        return
    say(f"  look at it:  fastfeed preprocess preview {place}   stats {place}   verify {place}")


def _document(report: Report) -> dict[str, Any]:
    from dataclasses import asdict

    found = asdict(report)
    return found | {"bad": dict(report.reasons), "complete": report.complete, "bad_images": found["bad"]}


def _plainly(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _ended() -> Iterator[None]:
    """A SIGTERM, as schedulers send it, ends a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise _Ended

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
