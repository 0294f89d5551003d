"""Ray Data scores the samples of a job, a shard per task, and the scores go into a new job.

python examples/neighbors/ray_data.py                       # pip install 'ray[data]' pyarrow
"""

import functools

import job
import ray


def scores(table, shards):
    """Score all samples on the nodes of the cluster; they read the shards themselves."""
    data = ray.data.from_arrow(job.shard_tables(table))  # a block per shard
    score = functools.partial(job.sharpness, shards=shards)
    scored = data.map_batches(score, batch_size=None, batch_format="pyarrow", num_cpus=1)
    return job.pa.concat_tables(ray.get(scored.to_arrow_refs()))


def main():
    folder = job.arguments().folder.absolute()
    table = job.build(folder)
    # on a cluster: its address, or RAY_ADDRESS
    ray.init(log_to_driver=False, logging_level="error", ignore_reinit_error=True)
    print(f"{len(ray.nodes())} nodes")
    job.rebuild(folder, table, scores(table, str(folder / "shards")))
    ray.shutdown()


if __name__ == "__main__":
    main()
