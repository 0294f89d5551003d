"""Table of ranks: images/s with a resident batch and with real input, speed-up, efficiency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from fastfeed.errors import ProofError
from fastfeed.printable import plural
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.report.sentences import percent, rate
from fastfeed.proof.step_costs import SCHEMA, StepCosts

_KINDS = ("synthetic", "real")
_GAIN = ("speed-up", "efficiency")
_TABLE = 78  # columns from which there is room for it
_WHAT = (
    "images/s of all ranks, speed-up and efficiency against the fewest ranks; synthetic: one batch"
    " that is on the device already, real: from the feed or loader, input: what it costs of a step"
)


@dataclass(frozen=True, slots=True)
class RankCount:
    """Throughput of one number of ranks; the slowest rank's step counts for all."""

    ranks: int
    synthetic: float  # images/s of all ranks, one batch on each device
    real: float  # images/s of all ranks, with real input
    input_share: float  # of a step, of the slowest rank
    wait_low: float  # of the same, ends of the 95 % interval
    wait_high: float

    @classmethod
    def of(cls, ranks: int, records: Sequence[ProofRecord]) -> RankCount:
        """Count the records of all ranks of one run."""
        if len(records) != ranks:
            raise ProofError(
                f"{len(records)} of {ranks} ranks have iterated a feed that knows its rank; the"
                " trainer must read RANK and WORLD_SIZE, as fastfeed.World.detect() does, and"
                " train with the same feed on every rank"
            )
        proofs = [StepCosts.of(record) for record in records]
        slowest = max(proofs, key=lambda proof: proof.real.ns)
        images = sum(record.feed["batch"] for record in records)
        resident = max(proof.steps["resident"].ns for proof in proofs)
        real = slowest.real
        return cls(
            ranks,
            images * 1e9 / resident if resident else 0.0,
            images * 1e9 / real.ns if real.ns else 0.0,
            slowest.input_share,
            slowest.input.low / real.ns,
            slowest.input.high / real.ns,
        )


@dataclass(frozen=True, slots=True)
class RankScaling:
    """Rows by number of ranks, the fewest first; speed-up and efficiency are against those."""

    rows: tuple[RankCount, ...]

    def speed_up(self, row: RankCount, kind: str) -> float:
        """Speed-up over the fewest ranks; `kind`: "synthetic" or "real"."""
        before = getattr(self.rows[0], kind)
        return getattr(row, kind) / before if before else 0.0

    def efficiency(self, row: RankCount, kind: str) -> float:
        """Speed-up per rank: 1 if twice the ranks are twice as fast."""
        return self.speed_up(row, kind) * self.rows[0].ranks / row.ranks

    def as_dict(self) -> dict[str, Any]:
        """Throughput, speed-up and efficiency, for JSON."""
        rows = []
        for row in self.rows:
            figures: dict[str, Any] = {"ranks": row.ranks, "input_share": row.input_share}
            figures |= {"input_share_low": row.wait_low, "input_share_high": row.wait_high}
            for kind in _KINDS:
                figures[f"{kind}_images_per_second"] = getattr(row, kind)
                figures[f"{kind}_speed_up"] = self.speed_up(row, kind)
                figures[f"{kind}_efficiency"] = self.efficiency(row, kind)
            rows.append(figures)
        return {"fastfeed_prove": SCHEMA, "ranks": rows}

    def render(self, console: Console) -> None:
        """Print it: a table, or lines where that is too wide."""
        if console.width >= _TABLE:
            console.print(self._table())
        else:
            for line in self._lines():
                console.print(line, highlight=False, soft_wrap=True)
        console.print(_WHAT, style="dim", highlight=False)

    def _cells(self, row: RankCount, kind: str) -> tuple[str, str, str]:
        return (
            rate(getattr(row, kind)),
            f"{self.speed_up(row, kind):.2f}",
            percent(self.efficiency(row, kind)),
        )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in ("ranks", "synthetic/s", *_GAIN, "real/s", *_GAIN, "input"):
            table.add_column(head, justify="right", no_wrap=True)
        for row in self.rows:
            cells = [cell for kind in _KINDS for cell in self._cells(row, kind)]
            table.add_row(str(row.ranks), *cells, percent(row.input_share))
        return table

    def _lines(self) -> Iterator[str]:
        for row in self.rows:
            yield f"{plural(row.ranks, 'rank')}, input {percent(row.input_share)}"
            for kind in _KINDS:
                images, speed_up, efficiency = self._cells(row, kind)
                yield f"  {kind:10}{images:>9}/s{speed_up:>7}{efficiency:>9}"
