"""Is the truth in a proof's intervals? Trainers and feeds of known costs, in simulated time.

python benchmarks/bench_prove.py --proofs 600
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from helpers.scripted import ALL, Pages, Script, scripted_feed  # noqa: E402  needs the path

import fastfeed as ff  # noqa: E402
import fastfeed.proof.session  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "prove.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--proofs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the first proof")
    args = parser.parse_args()
    fastfeed.proof.session.FilePages = Pages  # type: ignore[misc, assignment]
    held: Counter[str] = Counter()
    error: Counter[str] = Counter()
    for seed in range(args.seed, args.seed + args.proofs):
        costs = ALL[seed % len(ALL)]
        script = Script(costs, seed)
        with scripted_feed(script) as feed:
            proof = ff.prove(lambda batch, s=script, f=feed: s.train_on(f), feed, seconds=40)
        for name, part in {**proof.parts, "input": proof.input}.items():
            held[name] += part.holds(costs.truth[name] * 1e6)
            error[name] += abs(part.ms - costs.truth[name])  # type: ignore[assignment]
    result = {
        "proofs": args.proofs,
        "first_seed": args.seed,
        "share_that_holds_the_truth": {name: held[name] / args.proofs for name in held},
        "mean_error_ms": {name: error[name] / args.proofs for name in error},
    }
    print(json.dumps(result, indent=1))
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
