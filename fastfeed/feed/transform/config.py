"""The checked arguments of a transform: no thread is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fastfeed.backends.options import CPU, check_pixels
from fastfeed.decode.memory_limit import check_memory
from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.config import FeedConfig, OpList, check_count, check_draws
from fastfeed.ops.decode import Decode
from fastfeed.ops.function import as_op
from fastfeed.ops.labels import MAX_CLASSES
from fastfeed.ops.program.compile import Program, fuse, with_transforms
from fastfeed.sampling.rng import check_seed
from fastfeed.sources.base import Optionals
from fastfeed.spec import PLAIN_OBJECTS, ObjectSpec, Spec

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class TransformConfig:
    """All that the results of a transform depend on, and its threads; it pickles."""

    ops: tuple[Any, ...]
    program: Program  # for files, or for pixels if these are the input
    seed: int
    threads: int | None
    decode: str
    device: Device
    classes: int
    memory: int | None
    input_spec: Spec  # ENCODED: files and images of any size
    objects: ObjectSpec  # rules for boxes, and the pairs of keypoints
    to_original: bool  # batches say what was done to each image

    @classmethod
    def make(
        cls,
        ops: OpList,
        *,
        seed: int,
        threads: int | None,
        decode: str,
        device: Device,
        classes: int,
        memory: int | None,
        input_spec: Spec,
        objects: ObjectSpec = PLAIN_OBJECTS,
        to_original: bool = False,
    ) -> TransformConfig:
        """Check the arguments of `Transform`; ConfigError if one is invalid."""
        check_seed(seed)
        if threads is not None:
            check_count("threads", threads, 1)
        if isinstance(classes, bool) or not 0 <= classes <= MAX_CLASSES:
            raise ConfigError.of("classes", f"an integer in [0, {MAX_CLASSES}]", classes)
        check_memory(memory)
        if decode not in CPU:
            raise ConfigError.of("decode", f"one of {', '.join(CPU)}", decode)
        if device not in ("cpu", "cuda"):
            raise ConfigError.of("device", '"cpu" or "cuda"', device)
        if device == "cuda" and (decode not in ("auto", "cpu") or not input_spec.encoded):
            raise ConfigError(
                'device="cuda" decodes files by the JPEG engine, got'
                f" decode={decode!r} and input {input_spec}; leave both out, or device",
                field="device",
            )
        is_pixels = (
            input_spec.dtype in ("uint8", "uint16", "float32") and input_spec.layout == "HWC"
        )
        if not input_spec.encoded and not is_pixels:
            raise ConfigError.of("input_spec", "uint8, uint16 or float32 HWC pixels", input_spec)
        program = with_transforms(fuse(ops, input_spec, classes=classes), to_original)
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
        checked = tuple(as_op(op) for op in ops)
        decode = "auto" if decode == "cpu" else decode
        return cls(
            checked,
            program,
            int(seed),
            threads,
            decode,
            device,
            classes,
            memory,
            input_spec,
            objects,
            to_original,
        )

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
        return cls.make(
            [step.op for step in steps if not step.implied and step.op.kind != "mix"],
            seed=config.plan.seed,
            threads=config.threads,
            decode=config.decode if config.backend == "cpu" else "auto",
            device="cpu",
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

    def with_ops(self, ops: OpList) -> TransformConfig:
        """The same with other ops. ConfigError as for `make`."""
        options = self.__getstate__()
        del options["program"], options["ops"]
        return TransformConfig.make(ops, **options)

    @cached_property
    def pixel_program(self) -> Program:
        """The program for arrays and PIL images."""
        if not self.input_spec.encoded:
            return self.program
        ops: Sequence[Any] = [op for op in self.ops if not isinstance(op, Decode)]
        decode = self.program.decode or Decode()
        spec = decode.out(self.input_spec)
        return with_transforms(fuse(ops, spec, classes=self.classes), self.to_original)

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
