"""Scores photographs once, and keeps those that a condition names: two jobs of preprocess.

python examples/score_and_filter.py
python examples/score_and_filter.py --data photos --shards shards --where "edges > 6"

The first job calls `Sharpness` in its worker processes, with a batch of samples at a time. The
second one reads what the first has written, so that another condition takes a moment.
"""

import argparse

import made
import numpy as np

import fastfeed as ff
from fastfeed.preprocess import Drop, Encoding, Limits, Metadata, Recipe, Sample, Scaling, run


class Sharpness:
    """Stands for a model, which would be loaded in `__init__`, once per worker process."""

    def __init__(self) -> None:
        self.weights = np.array([0.299, 0.587, 0.114], np.float32)

    def __call__(self, samples: list[Sample]) -> list[dict[str, float] | Drop]:
        """A score for each sample, or the reason to leave it out."""
        edges = [np.abs(np.diff(sample.pixels @ self.weights)).mean() for sample in samples]
        return [Drop("one color") if value < 0.5 else {"edges": float(value)} for value in edges]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="a folder with one folder per class")
    parser.add_argument("--shards", default=".fastfeed-demo/filtered", help="an empty folder")
    parser.add_argument("--where", default="edges > 4 and aspect < 2", help="a condition")
    args = parser.parse_args()

    photographs = args.data or made.photographs(None) / "train"
    # the name of this file as a module, which the worker processes import
    extras = Metadata(extras="score_and_filter:Sharpness", extras_batch=8)
    print(run(photographs, f"{args.shards}/scored", Recipe(Scaling(96), metadata=extras)))

    chosen = Recipe(Scaling(mode="none"), Encoding(keep_small=True), Limits(where=args.where))
    report = run(f"{args.shards}/scored", f"{args.shards}/chosen", chosen)
    print(report)

    kept = ff.TarShards(f"{args.shards}/chosen/*.tar", columns=["json"])
    metadata = kept.columns(np.arange(len(kept)))["json"]
    edges = sorted(sample["columns"]["edges"] for sample in metadata)
    print(f"{len(kept)} images are left, the least sharp of them has {edges[0]:.1f}")
