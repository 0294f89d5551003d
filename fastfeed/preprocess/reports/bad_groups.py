"""Bad images of a job by reason, class and folder, each with the command to act on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fastfeed.faults import format_reasons
from fastfeed.preprocess.model.condition import DROPPED
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.planning.bad_images import PlannedClasses, bad_images
from fastfeed.preprocess.reports.statistics import ranked
from fastfeed.preprocess.targets.job_state import Job

Command = Callable[..., str]  # (verb, *options): a command line about the job
MAX_GROUPS = 100  # of a kind; a job may have a million folders

# what may help, by reason, before the same file is read again; others need another file
RETRY = {
    "not_found": "once the files are there",
    "denied": "once storage gives them",
    "io_error": "once storage answers",
    "timeout": "with a larger --timeout or --patience",
    "not_allowed": "with --allow-path, --allow-host or --allow-scheme",
    "unsupported_format": "after pip install 'fastfeed[heic]', for HEIC",
    "oom": "with a larger --memory",
    "worker_crash": "with newer libraries",
    "internal": "once the code is repaired",
}
_EXCLUDED = "excluded by the recipe"
_ADVICE = {
    "too_small": f"{_EXCLUDED}, --min-side",
    "aspect": f"{_EXCLUDED}, --max-aspect",
    "policy": f"{_EXCLUDED}, --only-formats",
    DROPPED: "",
    "bomb": f"{_EXCLUDED}, --max-pixels",
    "label_missing": "needs a row in the table of labels",
}
# once there is another file, `update --repair` puts it into a new shard
_REPLACE = "replace the files, then repair"


@dataclass(frozen=True, slots=True)
class BadGroup:
    """Bad images of one reason, class or folder."""

    name: str
    images: int
    planned: int | None  # images of the class in the plan; None: not known
    reasons: dict[str, int]
    about: str  # what the reason means, and what may help; the reasons in a class or folder
    command: str  # retries those that may succeed, repairs replaced files, or shows the images


@dataclass(frozen=True, slots=True)
class BadGroups:
    """The largest groups of a kind."""

    kind: str  # "reason", "class" or "folder"
    groups: list[BadGroup]
    total: int  # groups, with those that are not listed

    def document(self) -> dict[str, Any]:
        """The groups as values for JSON."""
        return asdict(self)


def bad_groups(job: Job, command: Command) -> list[BadGroups]:
    """Groups by reason, by class if classes are known, and by folder; [] without bad images."""
    classes = PlannedClasses(job.target, job.plan)
    by_kind: dict[str, dict[str, Counter[str]]] = {
        kind: defaultdict(Counter) for kind in ("reason", "class", "folder")
    }
    for image in bad_images(job, classes):
        reason = image.sample.reason
        by_kind["reason"][reason][reason] += 1
        if reason == DROPPED:  # on purpose: no sign of a fault in its class or folder
            continue
        by_kind["folder"][image.folder][reason] += 1
        if image.class_name:
            by_kind["class"][image.class_name][reason] += 1
    planned = classes.counts() if by_kind["class"] else {}
    found = []
    for kind, groups in by_kind.items():
        largest = ranked({name: reasons.total() for name, reasons in groups.items()})[:MAX_GROUPS]
        listed = [
            _group(
                kind, name, groups[name], planned.get(name) if kind == "class" else None, command
            )
            for name, _ in largest
        ]
        if listed:
            found.append(BadGroups(kind, listed, len(groups)))
    return found


def _group(
    kind: str, name: str, reasons: Counter[str], planned: int | None, command: Command
) -> BadGroup:
    can_retry = sorted(reasons.keys() & RETRY.keys())
    words = [f"--{kind}", name]
    is_reason = kind == "reason"
    about = format_reasons(reasons, 4)
    if is_reason:
        advice = RETRY.get(name) or _ADVICE.get(name, _REPLACE)
        about = "; ".join(filter(None, (REASONS.get(name), advice)))
    if can_retry:
        if not is_reason and len(can_retry) < len(reasons):
            words += ["--reason", ",".join(can_retry)]
        line = command("retry", *words)
    elif is_reason and name not in _ADVICE:
        line = command("update", "--repair")
    else:
        line = command("bad", *words, "-o", "bad.zip")
    return BadGroup(name, reasons.total(), planned, dict(ranked(reasons)), about, line)
