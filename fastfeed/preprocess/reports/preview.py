"""Writes a preview of a job: contact sheets of shards, and an HTML page with them, statistics and
bad images.
"""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

from fastfeed.preprocess.model.format import format_size
from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.record import REASONS, BadSample, Record
from fastfeed.preprocess.reports.contact_sheet import draw_cells, draw_sheet
from fastfeed.preprocess.reports.statistics import (
    STAGES,
    Statistics,
    aspect,
    bins,
    bottleneck,
    megapixel,
    statistics,
    summary,
    top_rows,
)
from fastfeed.preprocess.targets.job_state import Job

__all__ = ["PAGE", "page", "preview"]

PAGE = f"{JOB}/preview/index.html"
_LISTED = 50  # bad photographs per reason
_QUALITY = 85  # of the sheets

_STYLE = """
:root { --ground: #fff; --raised: #f6f7f9; --line: #dde1e7; --ink: #1b2027; --soft: #566070; --bar: #3b6fd4;
  --bad: #c8272d; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --raised: #1c2027; --line: #323945; --ink: #e7eaef;
  --soft: #a2acba; --bar: #7aa2f7; --bad: #ff7b7f; color-scheme: dark; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 28px 24px 56px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 25px; line-height: 1.3; margin: 6px 0 4px; font-weight: 650; }
h2 { font-size: 18px; margin: 40px 0 10px; padding-top: 14px; border-top: 1px solid var(--line); font-weight: 650; }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 650; }
.soft { color: var(--soft); font-size: 13px; }
.say { background: var(--raised); border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px;
  margin: 16px 0; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: 1px 0; vertical-align: top; font-size: 14px; font-weight: 400; text-align: left; }
td.n { text-align: right; padding: 1px 10px; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.b { width: 45%; } td.b i { display: block; height: 11px; margin-top: 6px; min-width: 2px; border-radius: 2px;
  background: var(--bar); }
.bad td.b i { background: var(--bad); }
table.facts th { color: var(--soft); width: 130px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 26px 34px; }
img { max-width: 100%; height: auto; display: block; border: 1px solid var(--line); border-radius: 4px; }
figure { margin: 0 0 26px; } figcaption { font-size: 13px; color: var(--soft); margin: 4px 0; }
details { margin: 8px 0; } summary { cursor: pointer; } ul { margin: 6px 0; padding-left: 22px; font-size: 13px; }
"""


def preview(
    job: Job,
    *,
    shards: int = 8,
    count: int = 24,
    side: int = 160,
    on_shard: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write `__job/preview/`: a JPEG per drawn shard, and the page.

    Returns the names, the page last.
    """
    drawn_records = _spread([job.records[index] for index in sorted(job.records)], shards)
    pictures: list[tuple[Record, bytes]] = []
    written = []
    for number, record in enumerate(drawn_records):
        cells = draw_cells(job, record, count, side)
        if cells:
            file = io.BytesIO()
            draw_sheet(cells, side).save(file, "JPEG", quality=_QUALITY)
            written.append(f"{JOB}/preview/{record.shard.replace('/', '-')}.jpg")
            job.target.write(written[-1], file.getvalue())
            pictures.append((record, file.getvalue()))
        if on_shard is not None:
            on_shard(number + 1, len(drawn_records))
    bad = [sample for index in sorted(job.records) for sample in job.records[index].bad]
    job.target.write(
        PAGE, page(statistics(job), pictures, bad, job.plan.recipe.document()).encode()
    )
    return [*written, PAGE]


def page(
    stats: Statistics,
    pictures: Sequence[tuple[Record, bytes]],
    bad: Sequence[BadSample],
    recipe: Mapping[str, object],
) -> str:
    """The page as one self-contained HTML file."""
    counts = stats.tally
    charts = [
        _chart("Formats", top_rows(counts.formats, 8)),
        _chart("Megapixels", bins(counts.megapixels, megapixel)),
        _chart("Width : height", bins(counts.aspects, aspect)),
        _chart("Sizes written, height x width", top_rows(counts.sizes, 8)),
        _chart("Color modes", top_rows(counts.modes, 8)),
        _chart("Color profiles", top_rows(counts.icc, 8)),
        _chart("EXIF orientations", top_rows(counts.orientations, 8)),
    ]
    busy = sum(stats.took.stages.values())
    if busy:
        stages = [
            (STAGES.get(name, name), round(100 * took / busy))
            for name, took in stats.took.stages.items()
        ]
        charts.append(_chart("Where the time went, percent", stages))
    advice = bottleneck(stats.took)
    parts = [
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(stats.target)}: fastfeed preprocess</title><style>{_STYLE}</style><main>",
        f"<div class='soft'>fastfeed preprocess</div><h1>{escape(stats.target)}</h1>",
        f"<div class='soft'>from {escape(stats.source)}</div>",
        f"<div class='say'>{escape(advice[0].upper() + advice[1:])}.</div>" if advice else "",
        _facts([fact for fact in summary(stats) if fact[0][0] != " "]),  # stages have a chart
        "<p><a href='../duplicates.html'>Duplicates with thumbnails</a></p>"
        if any(why.startswith("duplicate") for why in stats.left_out)
        else "",
        "<h2>Input and output</h2><div class='grid'>",
        *charts,
        "</div>",
        _sheets(stats, pictures),
        _bad(bad),
        _recipe(recipe),
        "</main></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><th scope='row'>{escape(name.strip())}</th><td>{escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table class='facts'>{lines}</table>"


def _chart(title: str, bars: Sequence[tuple[str, int]], kind: str = "") -> str:
    if not bars:
        return ""
    largest = max(*(n for _, n in bars), 1)
    lines = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td class='n'>{n:,}</td>"
        f"<td class='b'><i style='width:{100 * n / largest:.1f}%'></i></td></tr>"
        for name, n in bars
    )
    return f"<div class='{kind}'><h3>{escape(title)}</h3><table>{lines}</table></div>"


def _sheets(stats: Statistics, pictures: Sequence[tuple[Record, bytes]]) -> str:
    if not pictures:
        return ""
    figures = "".join(
        f"<figure><figcaption>{escape(record.shard)}: {len(record.ids):,} samples,"
        f" {format_size(record.bytes)}"
        + (f", {len(record.bad):,} bad" if record.bad else "")
        + f"</figcaption><img alt='first samples of {escape(record.shard)}' "
        f"src='data:image/jpeg;base64,{base64.b64encode(picture).decode()}'></figure>"
        for record, picture in pictures
    )
    all_of_them = len(pictures) == stats.shards_done
    which = (
        ""
        if all_of_them
        else f", {len(pictures):,} of {stats.shards_done:,} shards, spread over the job"
    )
    return f"<h2>First samples{which}</h2>{figures}"


def _bad(bad: Sequence[BadSample]) -> str:
    if not bad:
        return "<h2>Bad photographs</h2><p>None.</p>"
    by_reason: dict[str, list[BadSample]] = defaultdict(list)
    for sample in bad:
        by_reason[sample.reason].append(sample)
    ranked = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    lists = []
    for reason, samples in ranked:
        lines = "".join(
            f"<li>{escape(sample.uri)}"
            f"{' <span class=soft>' + escape(sample.detail) + '</span>' if sample.detail else ''}</li>"
            for sample in samples[:_LISTED]
        )
        more = (
            f"<div class='soft'>and {len(samples) - _LISTED:,} more, in bad.jsonl</div>"
            if len(samples) > _LISTED
            else ""
        )
        lists.append(
            f"<details{' open' if len(ranked) < 4 else ''}><summary>{len(samples):,}"
            f" <b>{escape(reason)}</b> "
            "<span"
            f" class='soft'>{escape(REASONS.get(reason, ''))}</span></summary><ul>{lines}</ul>{more}</details>"
        )
    chart = _chart("By reason", [(reason, len(samples)) for reason, samples in ranked], "bad")
    return f"<h2>{len(bad):,} bad photographs</h2>{chart}{''.join(lists)}"


def _recipe(recipe: Mapping[str, object]) -> str:
    lines = [
        (f"{part}.{name}", str(value))
        for part, values in recipe.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
    ]
    return f"<h2>Recipe</h2><details><summary>All of it</summary>{_facts(lines)}</details>"


def _spread(records: Sequence[Record], limit: int) -> list[Record]:
    """Up to `limit` records, evenly spread, including the first and the last."""
    if len(records) <= limit:
        return list(records)
    if limit == 1:
        return [records[0]]
    return [records[k * (len(records) - 1) // (limit - 1)] for k in range(limit)]
