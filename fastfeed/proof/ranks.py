"""One row per number of ranks: images/s with a batch on the device and with real input, speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fastfeed.errors import ProofError
from fastfeed.proof.record import Record
from fastfeed.proof.result import SCHEMA, Proof
from fastfeed.proof.sentences import percent, rate

__all__ = ["RankCount", "Scaling"]


@dataclass(frozen=True, slots=True)
class RankCount:
    """What so many ranks reach together: the slowest rank's step counts for all."""

    ranks: int
    synthetic: float  # images/s of all ranks, one batch on each device
    real: float  # images/s of all ranks, with real input
    input_share: float  # of a step, of the slowest rank
    wait_low: float  # of the same, ends of the 95 % interval
    wait_high: float

    @classmethod
    def of(cls, ranks: int, records: Sequence[Record]) -> RankCount:
        """Of the records of all ranks of one run."""
        if len(records) != ranks:
            raise ProofError(
                f"{len(records)} of {ranks} ranks have iterated a feed that knows its rank; the trainer must read RANK "
                "and WORLD_SIZE, as fastfeed.World.detect() does, and train with the same feed on every rank"
            )
        proofs = [Proof.of(record) for record in records]
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
class Scaling:
    """Rows by number of ranks, the fewest first; speed-up and efficiency are against those."""

    rows: tuple[RankCount, ...]

    def speed_up(self, row: RankCount, kind: str) -> float:
        """`kind`: "synthetic" or "real"."""
        before = getattr(self.rows[0], kind)
        return getattr(row, kind) / before if before else 0.0

    def efficiency(self, row: RankCount, kind: str) -> float:
        """Speed-up per rank: 1 if twice the ranks are twice as fast."""
        return self.speed_up(row, kind) * self.rows[0].ranks / row.ranks

    def as_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        rows = []
        for row in self.rows:
            figures: dict[str, Any] = {"ranks": row.ranks, "input_share": row.input_share}
            figures |= {"input_share_low": row.wait_low, "input_share_high": row.wait_high}
            for kind in ("synthetic", "real"):
                figures[f"{kind}_images_per_second"] = getattr(row, kind)
                figures[f"{kind}_speed_up"] = self.speed_up(row, kind)
                figures[f"{kind}_efficiency"] = self.efficiency(row, kind)
            rows.append(figures)
        return {"fastfeed_prove": SCHEMA, "ranks": rows}

    def table(self) -> Table:
        """For a terminal."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        heads = ("ranks", "synthetic/s", "speed-up", "efficiency", "real/s", "speed-up", "efficiency", "input")
        for head in heads:
            table.add_column(head, justify="right")
        for row in self.rows:
            cells = [str(row.ranks)]
            for kind in ("synthetic", "real"):
                cells.append(rate(getattr(row, kind)))
                cells += [f"{self.speed_up(row, kind):.2f}", percent(self.efficiency(row, kind))]
            table.add_row(*cells, percent(row.input_share))
        return table
