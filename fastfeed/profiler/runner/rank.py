"""Records one rank: `python -m fastfeed.profiler.runner.rank SPEC COMMAND...`, by launchers."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from fastfeed.profiler.runner.foreground import unrunnable
from fastfeed.profiler.runner.session import record_rank
from fastfeed.profiler.runner.settings import TIMELINE, Settings, rank_of

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Record one rank and return its program's exit code.

    Its notes go to a file next to the recording.
    """
    settings = replace(Settings.from_json(arguments[0]), command=tuple(arguments[1:]))
    problem = unrunnable(settings.command)
    if problem is not None:
        print(f"fastfeed: {problem[1]}", file=sys.stderr)
        return problem[0]
    rank = rank_of(os.environ)
    name = f"rank{rank}" if rank is not None else f"pid{os.getpid()}"
    # launchers hand the environment on to their own machine only
    result = record_rank(
        settings, name, {**os.environ, TIMELINE: str(settings.out / "timeline.jsonl")}
    )
    if result.notes:
        try:
            (settings.out / f"{name}.notes").write_text(json.dumps(result.notes))
        except OSError:  # a full disk: say it here
            print(
                *(f"fastfeed: {name}: {note}" for note in result.notes), sep="\n", file=sys.stderr
            )
    return result.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
