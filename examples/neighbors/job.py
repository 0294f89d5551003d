"""The parts that both examples share: a job, a score of its images, and the way back into a job."""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image, ImageFilter

import fastfeed as ff
from fastfeed.preprocess import Limits, Packing, Recipe, Scaling, open_input, plan_table, run


def arguments():
    """Parse the command line: a folder for all that an example writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path(".fastfeed-demo/neighbors"))
    return parser.parse_args()


def build(folder):
    """Make 48 images, sharp and blurred ones, and a file that is none; build their shards."""
    photos = folder / "photos"
    for name, blur in (("sharp", 0), ("blurred", 3)):
        (photos / name).mkdir(parents=True, exist_ok=True)
        for k in range(24):
            pixels = np.random.default_rng(k).integers(0, 256, (64, 96, 3), np.uint8)
            image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(blur))
            image.save(photos / name / f"{k:02}.jpg")
    (photos / "sharp" / "notes.jpg").write_text("not an image")
    run(photos, folder / "shards", Recipe(Scaling(64), packing=Packing(samples=8)))
    return plan_table(folder / "shards")


def sharpness(rows, shards):
    """Score the samples of one shard, which the worker reads itself: `uri` and `sharpness`."""
    (name,) = set(rows["shard"].to_pylist())
    source = ff.TarShards(f"{shards}/{name}", progress=False)
    images = source.read(rows["position"].to_pylist())
    with ff.Transform([ff.Resize((64, 64))], threads=1) as transform:
        gray = transform(images).images.mean(-1, dtype=np.float32)
    steps = np.abs(np.diff(gray, axis=2)).mean((1, 2))
    return pa.table({"uri": rows["uri"], "sharpness": pa.array(steps, pa.float64())})


def shard_tables(table):
    """One table per shard, of the samples in it."""
    done = table.filter(pc.equal(table["state"], "done")).select(["uri", "shard", "position"])
    return [done.filter(pc.equal(done["shard"], name)) for name in done["shard"].unique()]


def rebuild(folder, table, scores):
    """Build shards with the scores as a column, without blurred images."""
    # a row for each file, bad ones too: their score is null
    rows = table.select(["uri"]).join(scores, "uri").rename_columns(["path", "sharpness"])
    pq.write_table(rows, folder / "scores.parquet")
    input = open_input(
        str(folder / "photos"), labels_file=str(folder / "scores.parquet"), columns=["sharpness"]
    )
    recipe = Recipe(Scaling(64), limits=Limits(where="sharpness > 10"), packing=Packing(samples=8))
    report = run(input, folder / "scored", recipe)
    columns = plan_table(folder / "scored")["columns"].combine_chunks()
    scored = columns.field("sharpness")
    print(f"{report.tally.samples} images, sharpness {pc.min(scored)} to {pc.max(scored)}")
    return report
