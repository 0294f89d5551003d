"""Preview of a job: contact sheets of shards, and a page with them, statistics and bad images."""

from __future__ import annotations

import base64
import io
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastfeed import html_page
from fastfeed.contact_sheet import Cell, draw_sheet
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.html_page import Markup, bullets, escape
from fastfeed.preprocess.inputs.plan_ids import label_names, read_labels
from fastfeed.preprocess.inputs.previous_job import open_shard
from fastfeed.preprocess.model.layout import PREVIEWS
from fastfeed.preprocess.model.record import BadSample, ShardRecord
from fastfeed.preprocess.reports.bad_groups import BadGroups, Command, bad_groups
from fastfeed.preprocess.reports.statistics import (
    STAGES,
    Statistics,
    bottleneck,
    charts,
    ranked,
    statistics,
    summary,
)
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.printable import format_size

PAGE = f"{PREVIEWS}index.html"
_LISTED = 50  # bad images per reason
_GROUPS = 20  # reasons, classes and folders
_QUALITY = 85  # of the sheets


def preview(
    job: Job,
    *,
    command: Command = lambda *_: "",
    shards: int = 8,
    count: int = 24,
    side: int = 160,
    on_shard: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write `__job/preview/`: a JPEG per drawn shard, and the page with `command`'s lines.

    Of the job as it is now. Returns the names, the page last. ConfigError while another process updates the job.
    """
    with job_lock(job.target, shared=True):  # an update removes what it has withdrawn
        job = open_job(job.target)
        drawn_records = _spread([job.records[index] for index in sorted(job.records)], shards)
        pictures: list[tuple[ShardRecord, bytes]] = []
        written = []
        for number, record in enumerate(drawn_records):
            cells = draw_cells(job, record, count, side)
            if cells:
                file = io.BytesIO()
                draw_sheet(cells, side).save(file, "JPEG", quality=_QUALITY)
                written.append(f"{PREVIEWS}{record.shard.replace('/', '-')}.jpg")
                job.target.write(written[-1], file.getvalue())
                pictures.append((record, file.getvalue()))
            if on_shard is not None:
                on_shard(number + 1, len(drawn_records))
        groups = bad_groups(job, command)
        text = page(statistics(job), pictures, job.bad, groups, job.plan.recipe.document())
        job.target.write(PAGE, text.encode())
        return [*written, PAGE]


def draw_cells(job: Job, record: ShardRecord, count: int, side: int) -> list[Cell]:
    """The first samples of a shard, at most `side` pixels per side, read back from it."""
    ids = record.ids[:count]
    if not ids:
        return []
    try:
        # for the index, not in the target
        with tempfile.TemporaryDirectory(prefix="fastfeed-preview-") as scratch:
            source = open_shard(
                job.target, job.plan, record.shard, os.path.join(scratch, "shard.ffindex")
            )
            positions = np.arange(min(len(ids), len(source)))
            samples = source.read([int(position) for position in positions])
            labels = read_labels(source, positions)
    except (SourceError, ValueError) as error:
        return [Cell(None, str(error))]
    classes = job.plan.classes
    class_names = [", ".join(label_names(label, classes)) for label in labels]
    return [
        Cell(*_thumbnail(sample, side, f"{name}  #{id}".strip()))
        for sample, name, id in zip(samples, class_names, ids, strict=False)
    ]


def _thumbnail(sample: Any, side: int, title: str) -> tuple[Image.Image | None, str]:
    if isinstance(sample, Failure):
        return None, f"{title} {sample.reason}"
    try:
        if not isinstance(sample, np.ndarray) and bytes(sample[:6]) == b"\x93NUMPY":
            sample = np.load(io.BytesIO(sample), allow_pickle=False)
        image = (
            Image.fromarray(np.asarray(sample))
            if isinstance(sample, np.ndarray)
            else Image.open(io.BytesIO(sample))
        )
        image.draft("RGB", (side, side))  # decodes fewer pixels of JPEGs
        image = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return None, f"{title} {error}"
    image.thumbnail((side, side))
    return image, title


def page(
    stats: Statistics,
    pictures: Sequence[tuple[ShardRecord, bytes]],
    bad: Sequence[BadSample],
    groups: Sequence[BadGroups],
    recipe: Mapping[str, object],
) -> str:
    """The page as one self-contained HTML file."""
    bars = [_chart(title[0].upper() + title[1:], rows) for title, rows in charts(stats)]
    busy = sum(stats.took.stages.values())
    if busy:
        stages = [
            (STAGES.get(name, name), round(100 * took / busy))
            for name, took in stats.took.stages.items()
        ]
        bars.append(_chart("Where the time went, percent", stages))
    advice = bottleneck(stats.took)
    parts = [
        f'<main>\n<div class="soft">fastfeed preprocess</div><h1>{escape(stats.target)}</h1>',
        f'<div class="soft">from {escape(stats.source)}</div>',
        f'<p class="act">{escape(advice[0].upper() + advice[1:])}.</p>' if advice else "",
        _facts([fact for fact in summary(stats) if fact[0][0] != " "]),  # stages have a chart
        '<p><a href="../duplicates.html">Duplicates with thumbnails</a></p>'
        if any(why.startswith("duplicate") for why in stats.left_out)
        else "",
        '<h2>Input and output</h2><div class="grid">',
        *bars,
        "</div>",
        _sheets(stats, pictures),
        _bad(bad, groups),
        _recipe(recipe),
        "</main>",
    ]
    return html_page.page(
        f"{stats.target}: fastfeed preprocess",
        f"Preview of a job of fastfeed preprocess from {stats.source}",
        "\n".join(filter(None, parts)),
        style=html_page.asset(Path(__file__).with_name("preview.css")),
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(name.strip())}</th><td>{escape(value)}</td></tr>'
        for name, value in facts
    )
    return f'<table class="about">{lines}</table>'


def _chart(title: str, bars: Sequence[tuple[str, int]]) -> str:
    if not bars:
        return ""
    largest = max(*(n for _, n in bars), 1)
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="num">{n:,}</td>'
        f'<td><i style="width:{100 * n / largest:.1f}%"></i></td></tr>'
        for name, n in bars
    )
    return f'<div class="counts"><h3>{escape(title)}</h3><table>{lines}</table></div>'


def _sheets(stats: Statistics, pictures: Sequence[tuple[ShardRecord, bytes]]) -> str:
    if not pictures:
        return ""
    figures = []
    for record, picture in pictures:
        count = sum(not sample.is_dropped for sample in record.bad)
        bad = f", {count:,} bad" if count else ""
        figures.append(
            f"<figure><figcaption>{escape(record.shard)}: {len(record.ids):,} samples,"
            f' {format_size(record.bytes)}{bad}</figcaption><img alt="first samples of'
            f' {escape(record.shard)}" src="data:image/jpeg;base64,'
            f'{base64.b64encode(picture).decode()}"></figure>'
        )
    which = f", {len(pictures):,} of {stats.shards_done:,} shards, spread over the job"
    if len(pictures) == stats.shards_done:
        which = ""
    return f"<h2>First samples{which}</h2>{''.join(figures)}"


def _bad(bad: Sequence[BadSample], groups: Sequence[BadGroups]) -> str:
    if not bad:
        return "<h2>Bad images</h2><p>None.</p>"
    by_reason: dict[str, list[BadSample]] = defaultdict(list)
    for sample in bad:
        by_reason[sample.reason].append(sample)
    lists = []
    for reason, count in ranked({reason: len(samples) for reason, samples in by_reason.items()}):
        lines = [
            Markup(f'{escape(sample.uri)} <span class="soft">{escape(sample.detail)}</span>')
            for sample in by_reason[reason][:_LISTED]
        ]
        more = count - _LISTED
        note = f'<div class="soft">and {more:,} more, in bad.jsonl</div>' if more > 0 else ""
        lists.append(
            f"<details><summary>{count:,} <b>{escape(reason)}</b></summary>{bullets(lines)}{note}"
            "</details>"
        )
    tables = [_group_table(kind) for kind in groups]
    return f"<h2>{len(bad):,} bad images</h2>{''.join(tables)}<h3>Files</h3>{''.join(lists)}"


def _group_table(kind: BadGroups) -> str:
    """A table of the largest groups, each with its command."""
    rows = [
        (
            group.name,
            f"{group.images:,} of {group.planned:,}" if group.planned else f"{group.images:,}",
            group.about,
            Markup(f"<code>{escape(group.command)}</code>" if group.command else ""),
        )
        for group in kind.groups[:_GROUPS]
    ]
    more = kind.total - len(rows)
    note = f'<div class="soft">and {more:,} more</div>' if more else ""
    about = "Meaning" if kind.kind == "reason" else "Reasons"
    head = (f"~By {kind.kind}", "#Images", about, "~Command")
    return html_page.table(head, rows, stacked=True) + note


def _recipe(recipe: Mapping[str, object]) -> str:
    lines = [
        (f"{part}.{name}", str(value))
        for part, values in recipe.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
    ]
    return f"<h2>Recipe</h2><details><summary>All of it</summary>{_facts(lines)}</details>"


def _spread(records: Sequence[ShardRecord], limit: int) -> list[ShardRecord]:
    """Up to `limit` records, evenly spread, including the first and the last."""
    if len(records) <= limit:
        return list(records)
    if limit == 1:
        return [records[0]]
    return [records[k * (len(records) - 1) // (limit - 1)] for k in range(limit)]
