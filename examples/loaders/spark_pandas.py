"""Spark: `mapInPandas` makes images of a table of paths, or of `binaryFile`, in Python workers.

python examples/loaders/spark_pandas.py                     # pip install pyspark pandas; Java
"""

import os
import sys

import photos
from pyspark.sql import SparkSession

import fastfeed as ff

SCHEMA = "id long, label long, image binary, bad string"


def batches(frame, transform, epoch=0):
    """A table of raw pixels in place of the paths; `bad` says why a row has none."""

    def prepare(frames):
        for rows in frames:
            batch = transform(rows["path"].tolist(), ids=rows["id"].to_numpy(), epoch=epoch)
            rows["bad"] = [str(batch.bad.get(row, "")) for row in range(len(rows))]
            rows["image"] = [
                None if row in batch.bad else image.tobytes()
                for row, image in enumerate(batch.images)
            ]
            yield rows[["id", "label", "image", "bad"]]

    return frame.mapInPandas(prepare, SCHEMA)


def main():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers, which run here
    paths, labels = photos.files()
    session = SparkSession.builder.master("local[2]").getOrCreate()
    # rows per call: 10,000 otherwise, whose images may not fit into memory
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 64)
    rows = list(zip(range(len(paths)), paths, labels, strict=True))
    frame = session.createDataFrame(rows, "id long, path string, label long")
    # as many threads as `spark.task.cpus`
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0, threads=1)
    for row in batches(frame, transform).collect():
        print(row.id, row.label, row.bad or len(row.image))
    session.stop()


if __name__ == "__main__":
    main()
