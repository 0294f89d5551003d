"""Changes in the words of the framework that wrote the trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.products import in_turn
from helpers.profiler.results_made import device

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.kernel_names import detect_framework
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.verdict.advice import remedies

MS = 1_000_000
WORDS = {
    "pytorch": (
        "torch",
        ".item()",
        ".cpu()",
        "pin_memory",
        "non_blocking",
        "empty_cache",
        "TORCHINDUCTOR",
        "PYTORCH",
    ),
    "jax": ("jax", "JAX", "orbax", "block_until_ready", "device_get", "XLA_"),
    "tensorflow": (
        "tf.",
        "TF_",
        "jit_compile",
        "steps_per_execution",
        ".numpy()",
        "Keras",
        "drop_remainder",
    ),
}


def losing(cause: Cause, framework: str, **metrics: float) -> DeviceResult:
    result = device(wait=MS)
    budget = replace(
        result.judged.budget,
        window=1_100 * MS,
        compute=1_000 * MS,
        comm=0,
        h2d=0,
        other=0,
        overhead=0,
        idle=100 * MS,
    )
    period = replace(result.judged, budget=budget, causes={cause: 100 * MS})
    return replace(result, steady=period, framework=framework, metrics=metrics)


@pytest.mark.parametrize(("framework", "pageable"), in_turn(WORDS, [0.0, 1.0]))
@pytest.mark.parametrize("cause", list(Cause))
def test_no_framework_is_told_anothers_functions(cause: Cause, pageable: float, framework: str):
    (remedy,) = remedies(losing(cause, framework, h2d_pageable=pageable))
    for other in WORDS.keys() - {framework}:
        assert not [word for word in WORDS[other] if word in remedy.change], remedy.change


@pytest.mark.parametrize(
    ("framework", "says"),
    [("pytorch", ".item()"), ("jax", "block_until_ready"), ("tensorflow", ".numpy()")],
)
def test_each_has_its_own_way_to_synchronize(framework: str, says: str):
    (remedy,) = remedies(losing(Cause.SYNC, framework))
    assert says in remedy.change


def test_pytorchs_loader_keeps_its_words_under_jax():
    (remedy,) = remedies(losing(Cause.INPUT, "jax", single_process=0.0))
    assert "workers" in remedy.change


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["aten::mm", "cudaLaunchKernel"], "pytorch"),
        (["void at::native::vectorized_elementwise_kernel<4>"], "pytorch"),
        (["PjitFunction(step)", "torch/utils/data/dataloader.py(521): __next__"], "jax"),
        (["IteratorGetNext", "pjit.py:92 _python_pjit"], "jax"),
        (["jit_train_step"], "jax"),
        (["IteratorGetNext", "ExecutorState::Process"], "tensorflow"),
        (["my_kernel", "cudaLaunchKernel"], ""),
        ([], ""),
    ],
)
def test_the_framework_is_known_by_names(names: list[str], framework: str):
    assert detect_framework(names) == framework
