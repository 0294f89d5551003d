"""The checked arguments of a transform: no thread is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import check_count
from fastfeed.backends.options import CPU, check_pixels
from fastfeed.decode.memory_limit import check_memory
from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.config import MOST_THREADS, FeedConfig, OpList, check_draws
from fastfeed.ops.decode import Decode
from fastfeed.ops.function import as_op
from fastfeed.ops.labels import MAX_CLASSES
from fastfeed.ops.program.compile import Program, fuse, with_transforms
from fastfeed.sampling.rng import check_seed
from fastfeed.sources.base import Optionals
from fastfeed.spec import ENCODED, PLAIN_OBJECTS, ObjectSpec, Spec

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class TransformConfig:
    """All that the results of a transform depend on, and its threads; it pickles."""

    ops: Sequence[Any]  # kept as a tuple
    seed: int = 0
    threads: int | None = None
    decode: str = "auto"
    device: Device = "cpu"
    classes: int = 0
    memory: int | None = None
    input_spec: Spec = ENCODED  # ENCODED: files and images of any size
    objects: ObjectSpec = PLAIN_OBJECTS  # rules for boxes, and the pairs of keypoints
    to_original: bool = False  # batches say what was done to each image
    program: Program = field(init=False)  # for files, or for pixels if these are the input

    def __post_init__(self) -> None:
        """Check the arguments of `Transform`; ConfigError if one is invalid."""
        check_seed(self.seed)
        if self.threads is not None:
            check_count("threads", self.threads, 1, MOST_THREADS)
        if isinstance(self.classes, bool) or not 0 <= self.classes <= MAX_CLASSES:
            raise ConfigError.of("classes", f"an integer in [0, {MAX_CLASSES}]", self.classes)
        check_memory(self.memory)
        decode = self.decode
        device = self.device
        spec = self.input_spec
        if decode not in CPU:
            raise ConfigError.of("decode", f"one of {', '.join(CPU)}", decode)
        if device not in ("cpu", "cuda"):
            raise ConfigError.of("device", '"cpu" or "cuda"', device)
        if device == "cuda" and (decode not in ("auto", "cpu") or not spec.encoded):
            raise ConfigError(
                'device="cuda" decodes files by the JPEG engine, got'
                f" decode={decode!r} and input {spec}; leave both out, or device",
                field="device",
            )
        is_pixels = spec.dtype in ("uint8", "uint16", "float32") and spec.layout == "HWC"
        if not spec.encoded and not is_pixels:
            raise ConfigError.of("input_spec", "uint8, uint16 or float32 HWC pixels", spec)
        program = self._compiled(self.ops, spec)
        check_pixels(program, "cpu" if device == "cpu" else "nvjpeg")
        if program.mix is not None:
            name = type(program.mix.op).__name__
            raise SpecError(
                f"{name} mixes samples of a batch, and a Transform makes each item by itself; leave"
                f" {name} out, or use a Feed"
            )
        if program.maps_images and device != "cpu":
            raise ConfigError(
                'device="cuda" keeps images on the GPU, where a Map cannot take them; use'
                ' device="cpu", or a Map of other fields',
                field="device",
            )
        for branch in (program, *program.others):
            check_draws(branch)
        object.__setattr__(self, "ops", tuple(as_op(op) for op in self.ops))
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "decode", "auto" if decode == "cpu" else decode)
        object.__setattr__(self, "program", program)

    def _compiled(self, ops: OpList, spec: Spec) -> Program:
        return with_transforms(fuse(ops, spec, classes=self.classes), self.to_original)

    @classmethod
    def of_feed(cls, config: FeedConfig) -> TransformConfig:
        """The ops of a feed for any items. ConfigError for samples of several images."""
        if config.program.image:
            raise ConfigError(
                f"a Transform takes items of one image, got {config.source!r}; make one of each"
                " list of ops: ff.Transform(ops)"
            )
        steps = config.program.steps
        rules = Optionals(config.source).object_spec
        return cls(
            [step.op for step in steps if not step.implied and step.op.kind != "mix"],
            seed=config.plan.seed,
            threads=config.threads,
            decode=config.decode if config.backend == "cpu" else "auto",
            classes=len(config.source.classes),
            memory=config.memory,
            input_spec=config.source.spec,
            objects=rules._replace(
                keypoints=0,
                keypoint_names=(),
                has_boxes=True,
                instance_masks=False,
                polygons=None,
                normalized=False,
            ),
            to_original=config.program.transforms,
        )

    @cached_property
    def pixel_program(self) -> Program:
        """The program for arrays and PIL images."""
        if not self.input_spec.encoded:
            return self.program
        decode = self.program.decode or Decode()
        ops = [op for op in self.ops if not isinstance(op, Decode)]
        return self._compiled(ops, decode.out(self.input_spec))

    @cached_property
    def takes_files(self) -> bool:
        """True unless it takes only pixels."""
        return self.input_spec.encoded

    @cached_property
    def takes_pixels(self) -> bool:
        """True unless it decodes to 8 bits with alpha."""
        pixels = self.program.pixels
        return pixels.has_kernel or pixels.dtype != "uint8"

    @cached_property
    def random(self) -> bool:
        """True if an op draws random numbers."""
        program = self.program
        steps = [step for part in (program, *program.others) for step in part.drawing]
        return any(step.op.draws for step in steps) or any(op.draws for op in program.maps)

    @cached_property
    def no_draws(self) -> list[list[np.ndarray]]:
        """Random numbers per branch where no op draws any."""
        program = self.program
        return [part.draw(lambda *_: np.empty(0)) for part in (program, *program.others)]

    @cached_property
    def is_plain(self) -> bool:
        """True if native code alone makes the images of files, one for each."""
        program = self.program
        has_more = program.others or program.views or program.maps or program.functions
        has_more = has_more or self.to_original or program.needs_boxes is not None
        return self.input_spec.encoded and self.device == "cpu" and not has_more

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
