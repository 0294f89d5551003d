"""Ray's nodes on this machine, for tests: python ray_cluster.py FOLDER.

It prints the address and a node's number per line: its raylet's process. "kill N" ends that node as
a power cut does, "add" starts one and prints its number. They all end when the input does.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ |= {
    "RAY_TMPDIR": sys.argv[1],
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # 15 by default: the workers of Ray would wait for all other tests
    "RAY_worker_niceness": "0",
}
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[n]) for n in (2, 3)])

from ray.cluster_utils import Cluster

# a GPU that Ray believes in
NODE = {
    "num_cpus": 1,
    "num_gpus": 1,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    nodes = {}

    def add() -> int:
        node = cluster.add_node(
            **{name: NODE[name] for name in ("num_cpus", "num_gpus", "object_store_memory")}
        )
        nodes[raylet(node)] = node
        return raylet(node)

    try:
        print(cluster.address, add(), add(), flush=True)
        for line in sys.stdin:
            what, *which = line.split()
            if what == "add":
                print(add(), flush=True)
            else:
                cluster.remove_node(nodes.pop(int(which[0])), allow_graceful=False)
                print("killed", flush=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(sys.argv[1], ignore_errors=True)


def raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


if __name__ == "__main__":
    main()
