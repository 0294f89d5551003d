"""Builds the DALI graph of a Program: decoding, the window, ops on pixels, conversion.

Ops that change pixels are in `chain.py` and the modules it imports, windows in `windows.py`; their
parameters are drawn beforehand, as for every backend, and enter the graph as inputs. Where DALI and
the cpu backend differ:

- File formats. Only those in PLAIN reach DALI's decoder, because it decodes others differently
  (transparency, animations, palettes, CMYK) or accepts damaged files. The rest arrives as finished
  pixels: see `backend.py`.
- Filters. DALI has no antialiased box, so images for a program with one arrive as finished pixels,
  too.
- The outer pixels of a window that touches the image's edge. Both read beyond a window, and beyond
  the image's edge Pillow leaves the filter's weights out while DALI repeats the outermost pixels:
  up to 15 levels on photographs, half a level on average, in the outermost row or column of a
  reduction; nothing when enlarging. One level inside.
- Overshoot. Pillow clips to bytes between its two passes, DALI does not, so bicubic and lanczos
  differ where the sharpest edges ring: one pixel in a thousand by more than 2 levels.
- JPEGs shrunk to less than a third. The cpu backend shrinks them in the DCT domain first; DALI
  decodes every pixel.
- Rounding. Results may differ by one level: Brightness, Contrast, Saturation, Hue, Grayscale,
  Equalize, AutoContrast, Gamma, Sharpness, GaussianBlur, GaussianNoise, bilinear warps. Invert,
  Solarize, Posterize, LUT, RandomErasing, CutOut, GridMask, flips, whole-pixel crops and borders
  are the same bytes.
- Warps by the nearest pixel. Where a pixel's center falls on the line between two others, either
  may be taken.
- Policies and AugMix. After a difference of one level, a pixel may fall on the other side of a
  threshold.
- JPEGCompression. The same bytes on the CPU, where both call one library; on a GPU, NVIDIA's
  arithmetic differs.

Not on this backend, a ConfigError at construction: Function, a user's own function of a NumPy
image; warps with a border other than "constant" or with `expand`; MedianBlur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastfeed.backends.dali import windows
from fastfeed.backends.dali.arithmetic import OpContext
from fastfeed.backends.dali.chain import Chain
from fastfeed.backends.dali.imports import GetCUDADeviceCount, Pipeline, fn, types
from fastfeed.ops.convert import Convert
from fastfeed.ops.program.program import Program

DTYPES = {"uint8": types.UINT8, "float16": types.FLOAT16, "float32": types.FLOAT}


def gpu_count() -> int:
    """Number of GPUs this process may use.

    0 if there is no driver, or one that DALI cannot use: see `no_gpu`.
    """
    try:
        return GetCUDADeviceCount()
    except RuntimeError:
        return 0


def no_gpu() -> str:
    """The reason for having no GPU, in DALI's words; empty if DALI just reports none.

    DALI raises if the driver is too old.
    """
    try:
        GetCUDADeviceCount()
    except RuntimeError as error:
        return " ".join(str(error).split("Stacktrace")[0].split())[:200]
    return ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Description of a graph to build, and its device."""

    program: Program
    batch: int
    threads: int
    device: int | None  # GPU; None for the CPU
    hw_load: float = 0.65  # share of JPEGs for the hardware engine of a GPU
    cut: bool = False  # "data" is windows of the program's size, on the device

    @property
    def encoded(self) -> bool:
        """True if the graph decodes."""
        return self.program.decode is not None and not self.cut

    @property
    def chain(self) -> Chain:
        """The graph of the ops after decoding."""
        return Chain(self.program, self.device is not None)

    @property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """Inputs in addition to "data": name -> declaration."""
        window = {} if self.cut else {"window": {"dtype": types.FLOAT, "ndim": 1}}
        return window | self.chain.inputs


def build(graph: Graph) -> Any:
    """A DALI pipeline with the inputs "data" and `Graph.inputs`.

    Its outputs are the samples, the sizes of the decoded images, and values that only keep all
    inputs in the graph.

    Depth 1, so that an error belongs to the batch that was fed; DALI's default executor, the only
    one that continues after an error and whose outputs are not overwritten.
    """
    program = graph.program
    gpu = graph.device is not None
    pipe = Pipeline(
        batch_size=graph.batch,
        num_threads=graph.threads,
        device_id=graph.device,
        prefetch_queue_depth=1,
    )
    with pipe:
        data = fn.external_source(
            name="data",
            dtype=types.UINT8,
            ndim=1 if graph.encoded else 3,
            layout=None if graph.encoded else "HWC",
            device="gpu" if gpu and graph.cut else "cpu",
        )
        nodes = {name: fn.external_source(name=name, **how) for name, how in graph.inputs.items()}
        pixels = _decoded(data, graph)
        shape = pixels.shape()
        if not graph.cut:
            height, width, channels = (side or 0 for side in program.pixels.shape)
            context = OpContext((height, width), channels, gpu)
            pixels = windows.cut(pixels, nodes["window"], program.filter, program.border, context)
        pixels = graph.chain.change(pixels, nodes)
        # an unused input, such as when all samples take Invert(), would be pruned and could not be
        # fed
        pipe.set_outputs(_converted(pixels, program.convert), shape, *nodes.values())
    pipe.build()
    return pipe


def _decoded(data: Any, graph: Graph) -> Any:
    """Pixels on the device, from files or pixels."""
    gpu = graph.device is not None
    if not graph.encoded:
        return data.gpu() if gpu and not graph.cut else data
    if not gpu:
        return fn.decoders.image(data, device="cpu", output_type=types.RGB)
    # not tied to cores: several ranks share a machine. The CPU's decoder does fancy upsampling too
    return fn.decoders.image(
        data,
        device="mixed",
        output_type=types.RGB,
        affine=False,
        jpeg_fancy_upsampling=True,
        hw_decoder_load=graph.hw_load,
    )


def _converted(pixels: Any, how: Convert) -> Any:
    """pixel * scale + offset, dtype and layout in one pass."""
    if how.keeps_bytes:
        return fn.transpose(pixels, perm=[2, 0, 1]) if how.layout == "CHW" else pixels
    return fn.crop_mirror_normalize(
        pixels,
        dtype=DTYPES[how.dtype],
        output_layout=how.layout,
        mean=[-offset / scale for scale, offset in zip(how.scale, how.offset, strict=True)],
        std=[1 / scale for scale in how.scale],
    )
