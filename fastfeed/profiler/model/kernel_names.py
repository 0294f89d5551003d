"""Meanings of names in every dialect: API calls, communication, copies, ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fastfeed.profiler.model.trace import Kind, RangeKind

_SUFFIX = re.compile(r"(_v\d+)?(_pt[sd][sz])?(_v\d+)?$")
_GC = re.compile(r"(python )?(gc|garbage collection)\b(?!\.)", re.I)
_COMM = re.compile(
    r"^(nccl|rccl)|ncclDev|ncclKernel|nccl_|AllReduceKernel|all_?reduce_kernel|cross_device_reduce",
    re.I,
)
_AMD_COPY = re.compile(r"^__amd_rocclr_(copyBuffer|fillBuffer)")
_FRAME = r"(\(\d+\))?: "
_RANGE = r"^(?!\S*\.py\(\d+\): )"
_COPIES = (
    (re.compile(r"h(ost)?\s*(to|2|->|→)\s*d", re.I), Kind.H2D),
    (re.compile(r"d(evice|to)?\s*(to|2|->|→)\s*h", re.I), Kind.D2H),
    (re.compile(r"p(eer)?\s*(to|2|->|→)\s*p", re.I), Kind.P2P),
    (re.compile(r"d(evice)?\s*(to|2|->|→)\s*d", re.I), Kind.D2D),
)
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


def strip_version(api: str) -> str:
    """`cudaLaunchKernel_v7000` and `cuMemcpyAsync_ptsz` without their version suffixes."""
    return _SUFFIX.sub("", api)


def kernel_kind(name: str) -> Kind:
    """COMM, or COMPUTE; ROCm's copies run as kernels."""
    if _COMM.search(name):
        return Kind.COMM
    found = _AMD_COPY.match(name)
    if found:
        return Kind.MEMSET if found[1] == "fillBuffer" else Kind.D2D
    return Kind.COMPUTE


def copy_kind(text: str) -> Kind:
    """Direction of `Memcpy HtoD (Pageable -> Device)`, `[CUDA memcpy DtoH]` and the like."""
    text = text.split("(")[0] if re.search(r"[dhp]to[dhp]", text, re.I) else text
    return next((kind for pattern, kind in _COPIES if pattern.search(text)), Kind.OTHER)


def range_kind(text: str) -> RangeKind:
    """Kind of an NVTX range, by its name."""
    if text.startswith("fastfeed:"):
        return RangeKind.FEED
    if text.startswith("aten::"):
        return RangeKind.OP
    return RangeKind.GC if _GC.match(text) else RangeKind.NVTX


def signatures(group: str) -> dict[str, re.Pattern[str]]:
    """Patterns of names by kind, of one group of signatures.txt: calls, ranges or signs."""
    lines: dict[str, list[str]] = {}
    kind = ""
    for line in Path(__file__).with_name("signatures.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line and not line.startswith("#"):
            pattern = line.replace("{frame}", _FRAME).replace("{range}", _RANGE)
            lines.setdefault(kind, []).append(pattern)
    return {
        kind.split()[1]: re.compile("|".join(patterns), re.IGNORECASE)
        for kind, patterns in lines.items()
        if kind.split()[0] == group
    }


def detect_framework(names: Sequence[str]) -> str:
    """ "pytorch", "jax" or "tensorflow" (Keras by its backend); "" if the names do not say."""
    return next((framework for framework, sign in _SIGNS if any(map(sign.search, names))), "")
