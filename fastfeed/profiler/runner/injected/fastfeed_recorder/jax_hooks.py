"""Steps of JAX: calls of the compiled function that takes what it returned before."""

from __future__ import annotations

import functools
import operator
import types
import weakref
from typing import Any

_LOOKS = 20  # calls of a function in which its arguments are compared with what it returned
# calls of a function that takes nothing of what it returned: it is counted if no better one is
_MANY = 50


def callbacks(window: Any) -> dict[str, Any]:
    """Functions to call after the import of a module, by its name."""
    return {"jax": lambda module: _count_calls(module, window)}


def _count_calls(jax: Any, window: Any) -> None:
    window.imported("jax")
    for name in ("jit", "pmap"):
        setattr(jax, name, _counting(getattr(jax, name), jax, window))


def _counting(transform: Any, jax: Any, window: Any) -> Any:
    """`jax.jit` whose functions are counted."""

    @functools.wraps(transform)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        compiled = transform(*args, **kwargs)
        if hasattr(compiled, "lower"):
            return _Counted(compiled, jax, window)
        return lambda function: _Counted(compiled(function), jax, window)  # jit(static_argnums=0)

    return transformed


class _Counted:
    # A compiled function in all but its calls. No dictionary: JAX copies that of a function which
    # it compiles.
    __slots__ = ("__weakref__", "_compiled", "_feedback", "_window")

    def __init__(self, compiled: Any, jax: Any, window: Any) -> None:
        self._compiled = compiled
        self._feedback = _Feedback(jax)
        self._window = window

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        window = self._window
        if window.closed:
            return self._compiled(*args, **kwargs)
        feedback = self._feedback
        window.attempt(feedback.before, args, kwargs)
        result = self._compiled(*args, **kwargs)
        window.attempt(feedback.after, result)
        if feedback.is_step:
            window.step_ended(self, "jax", priority=1)
        elif feedback.calls >= _MANY:
            window.step_ended(self, "jax", priority=0)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __reduce__(self) -> Any:
        return operator.getitem, ([self._compiled], 0)  # pickled and copied as the function itself


class _Feedback:
    """Detects that a function is given again an array that it returned."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._returned: list[Any] = []  # weak references: no array lives longer than without
        self.calls = 0
        self.is_step = False

    def before(self, args: Any, kwargs: Any) -> None:
        if not self._returned:
            return
        returned = {id(reference()) for reference in self._returned} - {id(None)}
        self.is_step = any(
            id(leaf) in returned for leaf in self._jax.tree_util.tree_leaves((args, kwargs))
        )
        self._returned = []

    def after(self, result: Any) -> None:
        if self.is_step or self.calls >= _MANY:
            return
        leaves = self._jax.tree_util.tree_leaves(result) if self.calls < _LOOKS else []
        if any(
            isinstance(leaf, self._jax.core.Tracer) for leaf in leaves
        ):  # called inside of another function
            return
        self.calls += 1
        self._returned = [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, self._jax.Array)]
