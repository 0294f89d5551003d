"""torchrun on this machine of a job of SageMaker or Vertex AI, which number machines alone.

python examples/clusters/torchrun_here.py examples/landmarks_torch_ddp.py --checkpoint run.pt
"""

import json
import os
import sys
from pathlib import Path

SAGEMAKER = Path("/opt/ml/input/config/resourceconfig.json")


def machines():
    """The addresses of all machines in the same order on each, and the number of this one."""
    if SAGEMAKER.exists():
        config = json.loads(SAGEMAKER.read_text())
        hosts = sorted(config["hosts"])
        return hosts, hosts.index(config["current_host"])
    spec = json.loads(os.environ["CLUSTER_SPEC"])  # Vertex AI
    tasks = [
        (pool, i, address.rpartition(":")[0])
        for pool, addresses in sorted(spec["cluster"].items())
        for i, address in enumerate(addresses)
    ]
    own = (spec["task"]["type"], spec["task"]["index"])
    return [host for _, _, host in tasks], [task[:2] for task in tasks].index(own)


def main():
    hosts, number = machines()
    command = ["torchrun", f"--nnodes={len(hosts)}", f"--node-rank={number}"]
    command += [f"--master-addr={hosts[0]}", "--master-port=29500", "--nproc-per-node=gpu"]
    os.execvp(command[0], [*command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
