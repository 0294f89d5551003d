"""Spark scores the samples of a job, a shard per task, and the scores go into a new job.

python examples/neighbors/spark.py                          # pip install pyspark pandas pyarrow; Java
"""

import os
import sys

import job
from pyspark.sql import SparkSession


def scores(session, table, shards):
    """Score all samples in Python workers of the executors; they read the shards themselves."""
    done = session.createDataFrame(table).where("state = 'done'")
    columns = done.select("uri", "shard", "position")
    # as many partitions as shards: of so few rows Spark would make a single one
    by_shard = columns.repartition(len(job.shard_tables(table)), "shard").groupBy("shard")

    def score(rows):
        return job.sharpness(rows, shards)

    return by_shard.applyInArrow(score, "uri string, sharpness double").toArrow()


def main():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers, which run here
    folder = job.arguments().folder.absolute()
    table = job.build(folder)
    # three workers of one core and 1 GB on this machine; elsewhere the address of a cluster
    session = SparkSession.builder.master("local-cluster[3,1,1024]").getOrCreate()
    session.sparkContext.addPyFile(job.__file__)
    job.rebuild(folder, table, scores(session, table, str(folder / "shards")))
    session.stop()


if __name__ == "__main__":
    main()
