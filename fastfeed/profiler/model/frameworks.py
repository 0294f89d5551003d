"""The framework of a program by the names in its trace, for advice with its functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

# In this order. A loader of another framework is not a sign: JAX programs read with tf.data and
# PyTorch's DataLoader.
_SIGNS = (
    (
        "pytorch",
        re.compile(
            r"^aten::|^ProfilerStep|^autograd::|^Optimizer\.|torch/(nn|optim|autograd|_ops)"
        ),
    ),
    (
        "jax",
        re.compile(
            r"^Pjit|pjit\.py|(^|[/$])jax/|jaxlib|^(XlaModule:)?jit_\w|block_until_ready|BufferSequencing"
        ),
    ),
    (
        "tensorflow",
        re.compile(
            r"tensorflow/|^IteratorGetNext|^EagerKernelExecute|^FunctionRun|^ExecutorState|^TFE_"
        ),
    ),
    ("pytorch", re.compile(r"at::native::|c10::|torch/|DataLoaderIter\.__next__")),
    ("tensorflow", re.compile(r"^tensorflow::|Eigen::GpuDevice")),
)


def framework_of(names: Sequence[str]) -> str:
    """ "pytorch", "jax" or "tensorflow" (Keras by its backend); "" if the names do not say."""
    return next((framework for framework, sign in _SIGNS if any(map(sign.search, names))), "")
