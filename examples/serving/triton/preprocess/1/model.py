"""Encoded images to the pixels that a model was trained on, for Triton's Python backend.

Put the `preprocessing.json` of `save_model.py` next to this file, `triton/` into the model
repository, and an ensemble in front of the model, as the guide shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import fastfeed as ff


class TritonPythonModel:
    """The name and the methods that Triton asks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the transform, and open its threads before the first request."""
        folder = Path(args["model_repository"], args["model_version"])
        self.transform = ff.Transform.load(folder / "preprocessing.json")
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "PIXELS")
        spec = self.transform.spec
        dtype = np.dtype(pb_utils.triton_string_to_numpy(output["data_type"]))
        if tuple(output["dims"]) != spec.shape or dtype != spec.dtype:
            raise ValueError(f"config.pbtxt: PIXELS is {spec.dtype} {spec.shape} here")
        self.transform.__enter__()  # opens its threads; `finalize` ends them

    def execute(self, requests: list[Any]) -> list[Any]:
        """All images of all requests in one call; a bad one fails its own request."""
        inputs = [pb_utils.get_input_tensor_by_name(request, "IMAGE") for request in requests]
        items = [array.as_numpy().ravel().tolist() for array in inputs]
        batch = self.transform([item for some in items for item in some])
        responses = []
        end = 0
        for some in items:
            rows = range(end, end + len(some))
            end = rows.stop
            bad = [
                str(replace(batch.bad[row], uri=f"image {row - rows.start}"))
                for row in rows
                if row in batch.bad
            ]
            if bad:
                error = pb_utils.TritonError("; ".join(bad), pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
            else:
                pixels = pb_utils.Tensor("PIXELS", batch.images[rows.start : rows.stop])
                responses.append(pb_utils.InferenceResponse([pixels]))
        return responses

    def finalize(self) -> None:
        """End the threads."""
        self.transform.close()
