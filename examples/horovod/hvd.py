"""A stand-in for `horovod.torch` where that is not installed: its calls that before.py and after.py
make, over gloo.

Not Horovod: nothing overlaps, nothing is fused. The ranks come from mpirun's variables, as
Horovod's do.
"""

import os

from torch import distributed

rank = local_rank = lambda: int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))  # one machine
size = lambda: int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))  # noqa: E731


def init():
    distributed.init_process_group(
        "gloo", f"tcp://localhost:{os.environ.get('HVD_PORT', '29517')}", None, size(), rank()
    )


def allreduce(tensor):
    distributed.all_reduce(tensor)
    return tensor / size()


def broadcast_parameters(state, root_rank):
    for tensor in state.values():
        distributed.broadcast(tensor, root_rank)


def DistributedOptimizer(optimizer, named_parameters):
    def average(*_):
        for parameter in parameters:
            parameter.grad = allreduce(parameter.grad)

    parameters = [parameter for _, parameter in named_parameters]
    optimizer.register_step_pre_hook(average)
    return optimizer
