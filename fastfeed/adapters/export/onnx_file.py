"""An ONNX graph of the exact part of a list of ops."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

import numpy as np

from fastfeed.adapters.export.graph import GRAY, Cut, Gray, PixelGraph
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.saved import file_content
from fastfeed.runtime.json_file import save_file

try:
    onnx: Any = importlib.import_module("onnx")
except ImportError as error:
    raise MissingExtra.of("export_onnx", "ONNX", "onnx") from error

INPUT = "images"
OUTPUT = "pixels"
_OPSET = 13  # of 2020, so that old runtimes and TensorRT read it
_IR = 7


def export_onnx(path: str | os.PathLike[str], config: TransformConfig, size: Any) -> None:
    """Write the graph, as `Transform.export_onnx`."""
    graph = PixelGraph.of(config.ops, config.input_spec, size)
    nodes = _Nodes()
    for step in graph.steps:
        nodes.add(step, graph.shape[2])
    if graph.spec.layout == "CHW":
        nodes.node("Transpose", perm=[0, 3, 1, 2])
    nodes.node("Identity", out=OUTPUT)
    helper = onnx.helper
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(graph.spec.dtype))
    model = helper.make_model(
        helper.make_graph(
            nodes.nodes,
            "fastfeed",
            [helper.make_tensor_value_info(INPUT, onnx.TensorProto.UINT8, ["batch", *graph.shape])],
            [helper.make_tensor_value_info(OUTPUT, dtype, ["batch", *graph.spec.shape])],
            nodes.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="fastfeed",
    )
    helper.set_model_props(model, {"fastfeed": json.dumps(file_content(config))})
    onnx.checker.check_model(model, full_check=True)
    save_file(path, model.SerializeToString(deterministic=True), "graph", ConfigError)


class _Nodes:
    """Nodes in a row, each of which takes the result of the one before."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._last = INPUT

    def node(self, kind: str, *more: np.ndarray, out: str = "", **attributes: Any) -> None:
        """Append a node; `more`: constants after its first input."""
        self._append(kind, [self._last, *map(self._constant, more)], out, attributes)

    def add(self, step: Any, channels: int) -> None:
        """Append the nodes of a step."""
        if isinstance(step, Cut):
            self.node("Gather", step.rows, axis=1)
            self.node("Gather", step.columns, axis=2)
            if not step.inside.all():
                names = [self._constant(step.inside), self._last, self._constant(step.fill)]
                self._append("Where", names, "", {})
        elif isinstance(step, Gray):
            self.node("Cast", to=onnx.TensorProto.INT32)
            self.node("Mul", np.array(GRAY, np.int32))
            self.node("ReduceSum", np.array([3], np.int64), keepdims=1)
            self.node("Add", np.array(1 << 15, np.int32))
            self.node("Div", np.array(1 << 16, np.int32))
            self.node("Cast", to=onnx.TensorProto.UINT8)
            self._append("Concat", [self._last] * channels, "", {"axis": 3})
        else:
            values, firsts = step.flat()
            self.node("Cast", to=onnx.TensorProto.INT32)
            self.node("Add", firsts)
            names = [self._constant(values), self._last]
            self._append("Gather", names, "", {"axis": 0})

    def _append(self, kind: str, inputs: list[str], out: str, attributes: dict[str, Any]) -> None:
        self._last = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [self._last], **attributes))

    def _constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
