"""The bad images of a job with their names in the source and their classes."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.model.bad_filter import BadFilter, BadImage
from fastfeed.preprocess.model.condition import DROPPED
from fastfeed.preprocess.model.edits import NO_LABEL
from fastfeed.preprocess.model.plan import JobPlan, relative_uri
from fastfeed.preprocess.planning.check_source import label_hash, load_samples
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.preprocess.targets.target import Target
from fastfeed.printable import printable

_LISTED = 10  # names in an error


class PlannedClasses:
    """Names of classes by plan id, from the hashes that the job keeps of its source."""

    def __init__(self, target: Target, plan: JobPlan) -> None:
        hashes = np.zeros(0, np.uint32)
        if plan.classes and not plan.multi:
            with suppress(SourceError):  # the file is gone: classes are not known
                hashes = load_samples(target, plan)["label"]
        names: dict[int, str] = {}
        for name in plan.classes:
            for text in {name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))}:
                other = names.setdefault(code := label_hash(text), name)
                if other != name:  # two of one hash
                    names[code] = ""
        self._hashes = hashes
        self._names = names
        self._plan = plan

    def of(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Class of each id; "" for none, for several, and where it is not known."""
        ids = np.asarray(ids, np.int64)
        if self._plan.multi:
            return [""] * len(ids)
        classes = self._plan.classes
        codes = self._hashes[ids].tolist() if len(self._hashes) else [0] * len(ids)
        labels = self._plan.edits.at(ids).tolist()  # of those that were labeled since
        return [
            classes[label] if label >= 0 else self._names.get(code, "") if label < NO_LABEL else ""
            for code, label in zip(codes, labels, strict=True)
        ]

    def counts(self) -> dict[str, int]:
        """Planned images by class, without removed ones."""
        plan = self._plan
        if not len(self._hashes):
            return {}
        counts = Counter(self.of(plan.order[~np.isin(plan.order, plan.edits.gone)]))
        del counts[""]
        return dict(counts)


def bad_images(job: Job, classes: PlannedClasses | None = None) -> list[BadImage]:
    """Bad and dropped images of the shards that are done, in shard order."""
    bad = [(index, sample) for index in sorted(job.records) for sample in job.records[index].bad]
    if not bad:
        return []
    classes = classes or PlannedClasses(job.target, job.plan)
    parts = job.plan.parts
    names = classes.of([sample.id for _, sample in bad])
    images: list[BadImage] = []
    for (index, sample), class_name in zip(bad, names, strict=True):
        source = next(part.source for first, part in reversed(parts) if first <= sample.id)
        name = relative_uri(sample.uri, source) or sample.uri  # below the source of its part
        images.append(BadImage(sample, index, name, class_name))
    return images


def select_bad(job: Job, criteria: BadFilter) -> list[BadImage]:
    """Bad images that match. ConfigError for classes that the job has not, and names not bad."""
    known = job.plan.classes
    if criteria.classes and job.plan.multi:
        raise ConfigError(
            f"{job.target.text}: images of this job have several classes, by which bad ones are not"
            " listed; choose them by reason, folder or name",
            field="classes",
        )
    if unknown := [name for name in criteria.classes if name not in known]:
        allowed = f"among the job's {len(known):,} classes" if known else "left out: it has none"
        raise ConfigError(f"classes must be {allowed}, got {', '.join(unknown)}", field="classes")
    with_dropped = DROPPED in criteria.reasons  # only if they are asked for
    images = [
        image
        for image in bad_images(job)
        if criteria.accepts(image) and (with_dropped or not image.sample.is_dropped)
    ]
    if job.todo:  # of an interrupted retry: the shards of these images may have no record now
        return images
    matched = {uri for image in images for uri in (image.name, image.sample.uri)}
    if missing := sorted(set(criteria.names) - matched):
        listed = ", ".join(printable(name) for name in islice(missing, _LISTED))
        more = f" and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
        raise ConfigError(
            f"{job.target.text}: {len(missing):,} of these names are not among the bad images that"
            f" match: {listed}{more}; write them as in __job/bad.jsonl, or relative to the source"
        )
    if not images and (criteria.classes or criteria.folders):
        raise ConfigError(
            f"{job.target.text}: no bad image matches {printable(criteria.text)}; fastfeed"
            " preprocess status counts them by reason, class and folder"
        )
    return images
