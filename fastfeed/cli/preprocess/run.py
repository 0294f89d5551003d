"""`fastfeed preprocess SRC DST`, `resume`, `retry`, `update` and `merge`: commands that build shards."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastfeed.cli.preprocess import options
from fastfeed.cli.preprocess import values as preprocess_values
from fastfeed.cli.preprocess.inspect import AsJson, Options
from fastfeed.cli.preprocess.options import with_options
from fastfeed.cli.preprocess.values import job_command, without_secret
from fastfeed.cli.screen.help import argument, flag, option
from fastfeed.cli.screen.streams import Console
from fastfeed.errors import ConfigError, FastfeedError, SourceError, TargetError, TooManyFailures
from fastfeed.printable import printable

if TYPE_CHECKING:
    from fastfeed.preprocess.model.recipe import Recipe
    from fastfeed.preprocess.model.report import Progress, Report

# exit codes
TOO_BAD = 3
FULL = 4
STOPPED = 130
ENDED = 143
ARGUMENTS = "fastfeed.preprocess.arguments"  # key of the command line in the context's meta
_MAX_SHOWN = 3  # bad images printed
Jobs = Annotated[list[str], argument("A B ...", "Targets of complete jobs; only read.")]
_TWICE_HELP = "Of images in two of the jobs: error, or keep both."


class Terminated(KeyboardInterrupt):
    """Raised when SIGTERM is received."""


@with_options(options.RECIPE, options.JOB, options.RUN)
def run(ctx: typer.Context, src: options.Source, dst: options.Destination) -> None:
    """Turn images into training shards.

    If interrupted, run it again to resume.

    Examples:
        fastfeed preprocess photos/ shards/ --size 512                # WebDataset
        fastfeed preprocess photos/ shards/ --val 0.05 --dedupe near  # a split
        fastfeed preprocess s3://photos s3://shards --dry-run         # estimate
    """
    recipe = preprocess_values.parse_recipe(ctx.params)
    if ctx.params["dry_run"]:
        from fastfeed.cli.preprocess.dry_run import dry_run as print_estimate

        print_estimate(src, dst, recipe, ctx.params)
        return
    _run_job(
        ctx,
        src,
        dst,
        recipe.metadata.extras,
        recipe=recipe,
        append=ctx.params["append"],
        part=_part(ctx),
    )


@with_options(options.WITH, options.JOB)
def resume(ctx: typer.Context, paths: options.Places) -> None:
    """Resume a job with the recipe in its plan.

    Give SRC, its options and --with again: a plan alone may not name them.

    Examples:
        fastfeed preprocess resume photos/ shards/       # the source as before
        fastfeed preprocess resume /mnt/photos shards/   # it has moved
    """
    src, dst, recipe = _job_in_plan("resume", paths, ctx.params)
    _run_job(ctx, src, dst, recipe.metadata.extras, recipe=recipe, part=_part(ctx))


@with_options(options.BAD, options.WITH, options.JOB)
def retry(ctx: typer.Context, paths: options.Places) -> None:
    """Rebuild shards whose bad images may succeed now.

    Rebuilds shards with bad images that match all of --reason, --class, --folder and --names that
    are given, and missing shards.

    Examples:
        fastfeed preprocess retry photos/ shards/ --reason io_error,timeout  # either
        fastfeed preprocess retry photos/ shards/ --folder 2019 --class cat  # both
        fastfeed preprocess retry /mnt/photos shards/ --names files.txt      # moved
    """
    criteria, words = preprocess_values.parse_bad_filter(ctx.params)
    if not criteria:
        raise ConfigError("retry what? give --reason, --class, --folder or --names")
    src, dst, recipe = _job_in_plan("retry", paths, ctx.params, words)
    extras = recipe.metadata.extras
    _run_job(ctx, src, dst, extras, recipe=recipe, retry=criteria, part=_part(ctx))


@with_options(options.BAD, options.READ)
def bad(
    ctx: typer.Context,
    paths: options.Places,
    output: Annotated[Path, option("FILE", "Zip file to write.", "--output", "-o")],
    count: Annotated[int, option("N", "Images, at most.", "--count", "-n", min=1, max=2000)] = 200,
    side: Annotated[int, option("N", "Side of a preview in pixels.", min=32, max=512)] = 160,
) -> None:
    """Write a zip file with small previews of bad images.

    Holds a page and a line of JSON per image: what can be decoded, or the first bytes, and why it
    is bad. Files are decoded in worker processes; none of them is copied into the zip file.

    Examples:
        fastfeed preprocess bad photos/ shards/ -o bad.zip                     # all
        fastfeed preprocess bad photos/ shards/ -o bad.zip --reason truncated  # some
    """
    from fastfeed.preprocess.engines.named import engine_for
    from fastfeed.preprocess.planning.bad_images import select_bad
    from fastfeed.preprocess.planning.check_source import planned_ids
    from fastfeed.preprocess.planning.planning import planned_input
    from fastfeed.preprocess.reports.bad_bundle import write_bundle
    from fastfeed.preprocess.targets.job_state import open_job
    from fastfeed.preprocess.targets.target import open_target

    values = ctx.params
    criteria, words = preprocess_values.parse_bad_filter(values)
    words += ["-o", str(output)]
    src, dst, _ = _job_in_plan("bad", paths, values, words)
    job = open_job(
        open_target(dst, preprocess_values.target_options(values["target_option"]), writes=False)
    )
    check_outside(dst, output)
    own = set(job.plan.image_ids(src).tolist())
    images = [image for image in select_bad(job, criteria) if image.sample.id in own]
    if not images:
        nothing = f"{printable(dst)}: no bad image{' matches' * bool(criteria)}"
        Console(stderr=True).plain(f"fastfeed: {nothing}")
        return
    source = preprocess_values.opener(src, values)(job.target)
    input = planned_input(job.plan, source, planned_ids(job.target, job.plan, source))
    written = write_bundle(
        output,
        input,
        images,
        engine_for("local", values["workers"], values["memory"], values["timeout"]),
        count=count,
        side=side,
        title=f"{dst}, from {src}",
    )
    Console().plain(f"{written:,} of {len(images):,} bad images -> {printable(output, None)}")


@with_options(options.WITH, options.JOB)
def update(
    ctx: typer.Context,
    paths: options.Places,
    remove: Annotated[str, option("FILE", "Names of images to remove, one per line.")] = "",
    relabel: Annotated[str, option("FILE", "CSV with the columns uri,label.")] = "",
    repair: Annotated[bool, flag("Add bad images that can be read now.", "--repair")] = False,
    add: Annotated[bool, flag("Add images that are new in SRC.", "--add")] = False,
    drop_missing: Annotated[
        bool, flag("Remove images that are gone from SRC.", "--drop-missing")
    ] = False,
    ignore_unknown: Annotated[
        bool, flag("Skip names that the job does not have.", "--ignore-unknown")
    ] = False,
    dry_run: Annotated[bool, flag("Print what would change; write nothing.", "--dry-run")] = False,
) -> None:
    """Remove, relabel, repair or add images of a complete job.

    Writes only shards with changed images again; other images are copied, not decoded.

    Examples:
        fastfeed preprocess update photos/ shards/ --remove withdrawn.txt  # retract
        fastfeed preprocess update photos/ shards/ --relabel labels.csv    # correct
        fastfeed preprocess update photos/ shards/ --repair --add          # extend
    """
    from fastfeed.preprocess.job.update import update as update_job

    changes = {"repair": repair, "add": add, "drop_missing": drop_missing}
    changes |= {"ignore_unknown": ignore_unknown, "dry_run": dry_run}
    given = [f"--{name.replace('_', '-')}" for name, value in changes.items() if value]
    files = {"remove": remove, "relabel": relabel}
    named = [word for name, path in files.items() if path for word in (f"--{name}", path)]
    if not named and not (repair or add or drop_missing):
        options_text = "--remove, --relabel, --repair, --add or --drop-missing"
        raise ConfigError(f"update changes nothing without an option; pass {options_text}")
    if ctx.params["part"]:
        raise ConfigError("update has no parts; leave --part out, or pass --ray ADDRESS")
    src, dst, recipe = _job_in_plan("update", paths, ctx.params, [*named, *given])
    changes |= {"remove": remove or (), "relabel": relabel or None}
    _run_job(ctx, src, dst, recipe.metadata.extras, job=update_job, **changes)


def merge(
    jobs: Jobs,
    output: Annotated[str, option("C", "Folder or URL of the merged job.", "--output", "-o")],
    duplicates: Annotated[str, option("HOW", _TWICE_HELP)] = "error",
    target_option: Options = None,
    as_json: AsJson = False,
) -> None:
    """Merge the shards of jobs into one job.

    Files are hard links, or copies made by the object store, where possible.

    Examples:
        fastfeed preprocess merge old/ new/ -o all/              # a folder
        fastfeed preprocess merge s3://b/1 s3://b/2 -o s3://b/3  # a bucket
    """
    from fastfeed.preprocess.job.merge import merge as merge_jobs
    from fastfeed.preprocess.job.progress import show_progress

    errors = Console(stderr=True, emoji=False)
    if len(jobs) < 2:
        raise ConfigError(f"merge takes two or more jobs, got {jobs[0]}")
    options = preprocess_values.target_options(target_option)
    try:
        with show_progress(errors) as on_progress:
            report = merge_jobs(
                jobs,
                output,
                duplicates=duplicates,
                target_storage=options,
                on_progress=on_progress,
            )
    except TargetError as error:
        errors.plain(f"fastfeed: {error}")
        raise typer.Exit(FULL) from None
    print_report(report, output, "", None, as_json=as_json)


def check_outside(dst: str, output: Path) -> None:
    """ConfigError if a file is in a job's folder: readers, and updates, do not expect it there."""
    folder = dst.removeprefix("file://")
    if "://" not in folder and Path(folder).resolve() in output.resolve().parents:
        raise ConfigError(
            f"{output} is in the job's folder, whose files readers take for shards, and where no"
            " update would remove it; write it somewhere else",
            field="output",
        )


def _part(ctx: typer.Context) -> tuple[int, int] | None:
    return preprocess_values.parse_part_option(ctx.params["part"])


def command(arguments: Sequence[str]) -> str:
    """The command line for a shell; values of options that look like secrets are left out."""
    return shlex.join(["fastfeed", "preprocess", *map(without_secret, arguments)])


def _job_in_plan(
    verb: str, paths: Sequence[str], values: dict[str, Any], more: Sequence[str] = ()
) -> tuple[str, str, Recipe]:
    """SRC, DST and recipe of the job in DST. ConfigError for what only its plan names.

    `more`: options of the command line that is to be written again.
    """
    from fastfeed.preprocess.targets.job_state import load_plan
    from fastfeed.preprocess.targets.target import open_target

    if len(paths) > 2:
        raise ConfigError(f"expected SRC and DST, got {len(paths)} arguments: {' '.join(paths)}")
    dst = paths[-1]
    plan = load_plan(
        open_target(dst, preprocess_values.target_options(values["target_option"]), writes=False)
    )
    if plan is None:
        start = f"fastfeed preprocess SRC {shlex.quote(dst)}"
        raise ConfigError(f"{dst} holds no job: start one with {start}")
    extras = plan.recipe.metadata.extras
    source = paths[0] if len(paths) == 2 else plan.sources[0]
    request: Mapping[str, Any] = {}
    with suppress(ConfigError):  # of a merged job any SRC will do where none is read
        request = plan.source_parts(source)[0][1].request
    given = {"request": request, "target": values["target_option"]}
    line = job_command(verb, source, dst, extras if "with_" in values else "", *more, **given)
    if len(paths) == 1:
        raise ConfigError(
            f"SRC is missing: no source is read that only the plan in {dst} names. If you trust it,"
            f" say\n  {line}"
        )
    if "with_" in values and values["with_"] != extras:
        if not extras:
            got = values["with_"]
            raise ConfigError(f"the job in {dst} has no --with, got {got}; leave it out")
        raise ConfigError(
            f"--with is {values['with_'] or 'missing'}, the job in {dst} has {extras}: no code is"
            f" imported that only its plan names. If it is yours, say\n  {line}"
        )
    if request.get("labels_file") and values["labels"] is None:
        raise ConfigError(
            f"--labels is missing, the job in {dst} has {request['labels_file']}: no file is"
            f" read that only its plan names. If you trust it, say\n  {line}"
        )
    _take_names(values, request)
    return paths[0], dst, plan.recipe


def _take_names(values: dict[str, Any], request: Mapping[str, Any]) -> None:
    """Take names of columns from the job's plan if the command line has none."""
    for name in ("label", "label_kind", "image", "caption"):
        if values[name] is None:
            values[name] = request.get(name)
    values["columns"] = values["columns"] or ",".join(request.get("columns", ()))
    values["column_types"] = values["column_types"] or ",".join(request.get("column_types", ()))
    values["drop_unlabeled"] = values["drop_unlabeled"] or request.get("missing") == "drop"


def _run_job(
    ctx: typer.Context,
    src: str,
    dst: str,
    extras: str,
    job: Callable[..., Report] | None = None,
    **arguments: Any,
) -> None:
    """Run `job`, by default `run`, with these arguments and those of all jobs."""
    from fastfeed.faults import TRANSIENT
    from fastfeed.preprocess.job.job import run as run_job
    from fastfeed.preprocess.job.progress import show_progress
    from fastfeed.preprocess.model.report import STAGES
    from fastfeed.preprocess.targets.overlap import check_overlap

    if extras:
        sys.path.insert(0, os.getcwd())  # the function's module may lie here
    values = ctx.params
    errors = Console(stderr=True, emoji=False)
    storage_options = preprocess_values.target_options(values["target_option"])
    source = preprocess_values.opener(src, values)
    if job is None:
        job = run_job
        arguments["on_hint"] = lambda hint: errors.plain(f"fastfeed: {hint}")
    engine = {None: "local", "auto": "ray"}.get(values["ray"], f"ray:{values['ray']}")
    limit = preprocess_values.parse_max_bad(values["max_bad"])
    log = Path(values["json_log"]) if values["json_log"] else None  # Typer before 0.26: text
    check_overlap(src, dst)
    started = False
    try:
        with show_progress(errors, log) as on_progress:

            def listen(now: Progress) -> None:
                nonlocal started
                started = started or now.phase not in STAGES
                on_progress(now)

            report = job(
                source,
                dst,
                engine=engine,
                workers=values["workers"],
                memory=values["memory"],
                max_bad=limit,
                timeout_s=values["timeout"],
                gpus_per_worker=values["gpus_per_worker"],
                target_storage=storage_options,
                on_progress=listen,
                **arguments,
            )
    except KeyboardInterrupt as error:
        code = ENDED if isinstance(error, Terminated) else STOPPED
        raise _stop(errors, ctx, "stopped", code) from None
    except TooManyFailures as error:
        raise _stop(errors, ctx, str(error), TOO_BAD, error.help_url) from None
    except ConfigError:
        raise
    except (OSError, FastfeedError) as error:
        is_of_target = isinstance(error, OSError) and not isinstance(error, SourceError)
        if not started and not is_of_target:
            raise
        raise _stop(errors, ctx, str(error), FULL, getattr(error, "help_url", "")) from None
    retryable = ",".join(sorted(TRANSIENT & report.reasons.keys()))
    given = {"request": source.document(), "target": values["target_option"]}
    line = job_command("retry", src, dst, extras, "--reason", retryable, **given)
    line = line if retryable else ""
    print_report(report, dst, line, arguments.get("part"), as_json=values["as_json"])
    if report.complete and not report.tally.samples and job is run_job:
        why = "all are bad or left out, for the reasons above"
        errors.plain(f"fastfeed: no image is in the shards: {why}")
        raise typer.Exit(TOO_BAD)


def _stop(
    errors: Console, ctx: typer.Context, message: str, code: int, url: str = ""
) -> typer.Exit:
    errors.plain(f"fastfeed: {message}")
    limit = ", with a larger --max-bad" if code == TOO_BAD else ""
    kept_hint = "" if "finished shards are kept" in message else "finished shards are kept; "
    errors.plain(f"{kept_hint}to resume{limit}:\n  {command(ctx.meta.get(ARGUMENTS, []))}")
    if url:
        errors.plain(f"See {url}")
    return typer.Exit(code)


def print_report(
    report: Report, dst: str, retry: str, part: tuple[int, int] | None, as_json: bool
) -> None:
    """Print the report of a job, and commands that may come next."""
    if as_json:
        document = asdict(report)
        more = {"bad_images": document["bad"], "complete": report.complete}
        typer.echo(json.dumps(document | more | {"bad": dict(report.reasons)}))
        return
    print_line = Console().plain
    shown_dst = printable(dst.rstrip("/"), None)
    quoted_dst = printable(shlex.quote(dst), None)
    print_line(str(report))
    for bad in report.bad[:_MAX_SHOWN]:
        print_line(f"    {bad}")
    if (more := len(report.bad) - _MAX_SHOWN) > 0:
        where = f", all in {shown_dst}/{report.bad_list}" if report.bad_list else ""
        print_line(f"    and {more:,} more{where}")
    for note in report.notes[:_MAX_SHOWN]:
        print_line(f"  of the source: {note}")
    if (more := len(report.notes) - _MAX_SHOWN) > 0:
        print_line(f"  of the source: {more:,} more notes, in the report of --json")
    if report.duplicates:
        print_line(f"  duplicates with thumbnails: {shown_dst}/{report.duplicates}")
    if retry:
        print_line(f"  some may succeed now:  {retry}")
    if not report.complete:
        others = f"; part {part[0]}/{part[1]} is done" if part else ""
        print_line(f"  {report.shards - report.shards_done:,} shards are not done yet{others}")
        return
    print_line("  to inspect it:")
    for command in ("preview", "stats", "verify"):
        print_line(f"    fastfeed preprocess {command} {quoted_dst}")


@contextmanager
def sigterm_as_exception() -> Iterator[None]:
    """Handle SIGTERM, as sent by schedulers, like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise Terminated

    handler = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
