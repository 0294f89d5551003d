"""Compiled functions of JAX whose calls are counted: which of them ends a step; they are otherwise
themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, needs

from fastfeed.profiler.runner.injection import FOLDER

jax = LazyModule("jax")
pytestmark = needs("jax")


class Window:
    """Notes which steps end."""

    closed = False

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def imported(self, framework: str) -> None:
        assert framework == "jax"

    def attempt(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def step_ended(self, source: Any, framework: str, priority: int) -> None:
        self.steps.append((source.__name__, priority))


@pytest.fixture
def window() -> Window:
    return Window()


@pytest.fixture
def jit(window: Window, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    from fastfeed_recorder import jax_hooks  # type: ignore

    names = {name: getattr(jax, name) for name in ("jit", "pmap", "tree_util", "core", "Array")}
    module = SimpleNamespace(**names)
    jax_hooks.callbacks(window)["jax"](module)
    return module.jit


def square(x: Any) -> Any:
    return (x**2).sum()


def test_the_function_that_takes_what_it_returned_ends_steps(
    jit: Callable[..., Any], window: Window
):
    @jit
    def update(state, x):
        return {"w": state["w"] - 0.1 * x}, (state["w"] * x).sum()

    @jit
    def augment(x):
        return x * 2

    state = {"w": np.ones(3, np.float32)}
    for _ in range(4):
        state, _ = update(state, augment(np.ones(3, np.float32)))
    assert (
        window.steps == [("update", 1)] * 3
    )  # the first call was given nothing that it had returned


def test_without_such_a_function_one_that_is_called_often_does(
    jit: Callable[..., Any], window: Window
):
    gradient = jit(square)
    for _ in range(52):
        gradient(np.ones(3, np.float32))
    assert window.steps == [("square", 0)] * 3


def test_calls_inside_of_compiled_functions_are_none(jit: Callable[..., Any], window: Window):
    inner = jit(lambda x: x + 1)

    @jax.jit
    def chained(x):
        for _ in range(60):
            x = inner(x)
        return x

    chained(1.0)
    assert window.steps == []


def test_functions_are_otherwise_themselves(jit: Callable[..., Any]):
    ours, plain = jit(square), jax.jit(square)
    x = np.ones(3, np.float32)
    nested = [str(jax.make_jaxpr(jax.jit(lambda x, f=f: f(x) + 1))(x)) for f in (ours, plain)]
    assert nested[0] == nested[1]
    assert str(jax.make_jaxpr(ours)(x)) == str(jax.make_jaxpr(plain)(x))
    assert ours.lower(x).as_text() == plain.lower(x).as_text()
    assert (ours.__name__, ours.__wrapped__) == ("square", square) and isinstance(
        ours, jax.stages.Wrapped
    )
    assert jax.grad(ours)(x).tolist() == [2, 2, 2] and jax.vmap(ours)(x[None]).tolist() == [3]
    assert copy.deepcopy(ours)(x) == 3


def test_the_forms_of_jit(jit: Callable[..., Any]):
    class Model:
        @partial(jit, static_argnums=0)
        def add(self, x):
            return x + 1

        @jit(static_argnames="by")
        def scale(x, by):
            return x * by

    assert Model().add(1) == 2 and Model.scale(2, by=3) == 6
