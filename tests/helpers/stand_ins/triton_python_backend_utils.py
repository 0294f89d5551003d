"""What Triton's Python backend gives a `model.py`, by its documentation.

https://github.com/triton-inference-server/python_backend: `execute` gets requests and returns as
many responses, each with tensors or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_DTYPES = {"TYPE_UINT8": np.uint8, "TYPE_FP32": np.float32, "TYPE_STRING": np.object_}


class Tensor:
    """A name and an array."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class TritonError:
    """A message and a code."""

    INTERNAL = 1
    INVALID_ARG = 3

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class InferenceRequest:
    """The inputs of a request."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self._inputs = list(inputs)

    def inputs(self) -> list[Tensor]:
        return self._inputs


class InferenceResponse:
    """The outputs of a request, or its error."""

    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self._outputs = list(output_tensors)
        self._error = error

    def output_tensors(self) -> list[Tensor]:
        return self._outputs

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_config_by_name(config: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((output for output in config["output"] if output["name"] == name), None)


def triton_string_to_numpy(name: str) -> type:
    return _DTYPES[name]
