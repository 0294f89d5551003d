"""Do the intervals of a proof contain the true cost?

Trainers and feeds of known costs, in simulated time.

On a machine with and without other load; with the order of modes that is drawn for each round, and
with one that has a system.

python benchmarks/bench_prove.py --proofs 1000 --out benchmarks/results/prove.json
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rounds import finish  # puts `helpers` on the path

from helpers.scripted import ALL, LOADS, Idle, Pages, Script, scripted_feed  # isort: skip

import fastfeed as ff
import fastfeed.proof.measure.session
from fastfeed.proof.measure.modes import Mode, order


def rotated(modes: Sequence[Mode], turn: int, seed: int) -> list[Mode]:
    """Every second round backwards, and from pair to pair another mode first: what proofs did
    before.
    """
    first = turn // 2 % len(modes)
    turned = [*modes[first:], *modes[:first]]
    return turned[::-1] if turn % 2 else turned


ORDERS = {"drawn": order, "with a system": rotated}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proofs", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first proof")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    fastfeed.proof.measure.session.FilePages = Pages  # type: ignore[misc, assignment]
    seeds = range(args.seed, args.seed + args.proofs)
    rows = []
    for name, chosen in ORDERS.items():
        fastfeed.proof.measure.session.order = chosen  # type: ignore[assignment]
        for load, made in LOADS.items():
            rows.append({"order": name, "load": load, **series(seeds, made)})
            print(rows[-1], flush=True)
    result = {"proofs_of_each_kind": args.proofs, "first_seed": args.seed, "rows": rows}
    finish("Do the intervals of a proof contain the true cost?", result, args.out)


def series(seeds: range, made: Callable[[], Idle]) -> dict[str, Any]:
    held: Counter[str] = Counter()
    error: dict[str, float] = {}
    half: dict[str, float] = {}
    rounds: Counter[int] = Counter()
    for seed in seeds:
        script = Script(ALL[seed % len(ALL)], seed, made())
        with scripted_feed(script) as feed:
            proof = ff.prove(lambda batch, s=script, f=feed: s.train_on(f), feed, seconds=40)
        rounds[proof.rounds] += 1
        for name, part in {**proof.parts, "input": proof.input}.items():
            truth = script.truth[name]
            held[name] += part.holds(truth * 1e6)
            error[name] = error.get(name, 0.0) + abs(part.ms - truth)
            half[name] = half.get(name, 0.0) + (part.high - part.low) / 2e6
    n = len(seeds)
    return {
        "share_that_holds_the_truth": {name: round(held[name] / n, 4) for name in held},
        "mean_error_ms": {name: round(error[name] / n, 3) for name in error},
        "mean_half_width_ms": {name: round(half[name] / n, 3) for name in half},
        "rounds": dict(sorted(rounds.items())),
    }


if __name__ == "__main__":
    main()
