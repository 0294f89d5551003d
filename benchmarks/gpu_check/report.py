"""All results as one JSON object, as a page, and in a few lines."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.marks import judged

_NOT_REACHED = "not reached"


def collected(
    results: dict[str, dict[str, Any] | None], sentences: list[str], manifest: str, kit: Path
) -> dict[str, Any]:
    """What is committed: results of all steps, marks, what was missing, the kit's commit."""
    try:
        commit = json.loads((kit / manifest).read_text("utf-8")).get("commit")
    except (OSError, ValueError):
        commit = None
    stand_in = any(found.get("stand_in") for found in results.values() if found)
    return {
        "check": "fastfeed on a GPU, by gpu-kit",
        "where": "stand-in: a processor; no figure here says anything of a GPU"
        if stand_in
        else "a GPU machine",
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "python": platform.python_version(),
        "commit": commit,
        "marks": judged(results),
        "missing": sentences,
        "steps": {
            name: found or {"state": "not run", "reason": _NOT_REACHED}
            for name, found in results.items()
        },
    }


def summary(told: dict[str, Any]) -> str:
    """For a terminal."""
    lines = ["", f"{'step':18} {'state':8} {'s':>6} {'cpu s':>6}"]
    for name, found in told["steps"].items():
        reason = f"  {found['reason']}" if "reason" in found else ""
        stand_in = "  stand-in" if found.get("stand_in") else ""
        seconds = f"{found.get('seconds', 0):6.0f} {found.get('cpu_seconds', 0):6.0f}"
        lines.append(f"{name:18} {found['state']:8} {seconds}{stand_in}{reason[:200]}")
    lines += ["", "marks, for one H200 and 16 cores:"]
    lines += [f"  {mark}: {said}" for mark, said in told["marks"].items()]
    return "\n".join(lines)


def page(told: dict[str, Any]) -> str:
    """A result page in Markdown."""
    lines = [
        "# On a GPU",
        "",
        f"{told['where']}; {told['at']}, Python {told['python']}, commit {told['commit']}.",
        "",
    ]
    lines += ["| mark, for one H200 and 16 cores | |", "|---|---|"]
    lines += [f"| {mark} | {said} |" for mark, said in told["marks"].items()]
    lines += ["", *(f"- {sentence}" for sentence in told["missing"])]
    waiting = [name for name, found in told["steps"].items() if found.get("reason") == _NOT_REACHED]
    lines += [f"- not reached: {', '.join(waiting)}"] if waiting else []
    for name, found in told["steps"].items():
        if name in waiting:
            continue
        stand_in = " (stand-in)" if found.get("stand_in") else ""
        lines += [
            "",
            f"## {name}{stand_in}",
            "",
            f"{found.get('asks', '')}: **{found['state']}**",
            "",
        ]
        lines += [f"{found['reason']}", ""] if "reason" in found else []
        for title, figures in found.get("figures", {}).items():
            lines += _table(title, figures)
        if found.get("left_out"):
            lines += [f"Left out for time: {'; '.join(found['left_out'])}.", ""]
    lines += ["", "Written by `gpu-kit/run.py`; the JSON next to this page has all of it.", ""]
    return "\n".join(lines)


def _table(title: str, figures: Any) -> list[str]:
    """Rows of equal columns as a table, everything else as a line."""
    if (
        isinstance(figures, dict)
        and figures
        and all(isinstance(row, dict) for row in figures.values())
    ):
        columns = list(dict.fromkeys(name for row in figures.values() for name in row))
        if not any(
            isinstance(row.get(c), (dict, list)) for row in figures.values() for c in columns
        ):
            lines = [f"| {title} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
            return [
                *lines,
                *(
                    f"| {k} | {' | '.join(_cell(row.get(c)) for c in columns)} |"
                    for k, row in figures.items()
                ),
                "",
            ]
        return [line for name, row in figures.items() for line in _table(f"{title}, {name}", row)]
    if isinstance(figures, dict) and any(isinstance(value, dict) for value in figures.values()):
        single = {name: value for name, value in figures.items() if not isinstance(value, dict)}
        lines = _table(title, single) if single else []
        nested = [
            (name, value) for name, value in figures.items() if isinstance(value, dict) and value
        ]
        return lines + [
            line for name, value in nested for line in _table(f"{title}, {name}", value)
        ]
    if isinstance(figures, dict):
        return [
            f"- {title}: {', '.join(f'{name} {_cell(value)}' for name, value in figures.items())}",
            "",
        ]
    return [f"- {title}: {_cell(figures)}", ""]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")
