"""`fastfeed preprocess merge A B -o C`: one job from the shards of several."""

from __future__ import annotations

from typing import Annotated

import typer

from fastfeed.cli.preprocess import values as preprocess_values
from fastfeed.cli.preprocess.inspect import AsJson, Options
from fastfeed.cli.preprocess.run import FULL, print_report
from fastfeed.cli.screen.help import argument, option
from fastfeed.cli.screen.streams import Console
from fastfeed.errors import ConfigError, TargetError

Jobs = Annotated[list[str], argument("A B ...", "Targets of complete jobs; only read.")]
_TWICE_HELP = "Of images in two of the jobs: error, or keep both."


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
    options = preprocess_values.target_options({"target_option": target_option})
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
