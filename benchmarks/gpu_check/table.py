"""The steps, in order of worth, with the time each asks for."""

from __future__ import annotations

from typing import NamedTuple

# that all steps for one GPU may ask for: half an hour, less six minutes of transfers
MACHINE_SECONDS = 24 * 60


class Step(NamedTuple):
    """One row: `benchmarks.gpu_check.steps.<module>` answers one question."""

    name: str
    module: str
    asks: str
    needs: tuple[str, ...]  # "gpu", "gpus" (two), "DALI", or modules
    seconds: int  # that it asks for on a GPU machine
    least: int  # with less left of a call's budget it is not started

    @property
    def limit(self) -> float:
        """Seconds after which it is ended: one that hangs must not cost what the others would have
        told.
        """
        if self.name == "photos":  # most others need them
            return 480.0
        return min(480.0, max(180.0, 2.0 * self.seconds + 60))


_TORCH, _DALI = ("gpu", "torch", "fastfeed"), ("gpu", "torch", "DALI")
STEPS = (
    Step("inventory", "inventory", "what the machine has", (), 20, 15),
    Step("photos", "photos", "two sets of photographs, made here", ("numpy", "PIL"), 30, 20),
    Step(
        "kernel",
        "kernel",
        "the native extension at 1 to 16 threads, and with policies",
        ("fastfeed",),
        75,
        40,
    ),
    Step(
        "torchvision",
        "rival_vision",
        "torchvision's decode_jpeg on the GPU",
        ("gpu", "torch"),
        25,
        20,
    ),
    Step(
        "nvjpeg",
        "nvjpeg",
        "the JPEG engine itself: rates, scaling, regions, corruption",
        (),
        75,
        40,
    ),
    Step(
        "engine",
        "engine",
        "fastfeed on the JPEG engine without DALI: pixels, rates",
        _TORCH,
        90,
        40,
    ),
    Step("loads", "loads", "DALI by hardware load and threads", _DALI, 110, 60),
    Step("hybrid", "hybrid", "GPU and kernel together", _DALI, 110, 60),
    Step("faults", "checks", "1 % bad files on every path, memory", _DALI, 90, 40),
    Step(
        "agree",
        "checks",
        "pixels of every op, in any batch, under queued work",
        ("cv2", *_DALI),
        90,
        40,
    ),
    Step("overlap", "checks", "copies under compute", _TORCH, 30, 20),
    Step(
        "train-torch",
        "train",
        "three nets in PyTorch fed by the native extension, real / synthetic",
        _TORCH,
        180,
        60,
    ),
    Step(
        "train-torch-gpu",
        "train",
        "ResNet-50 fed by hybrid and GPU, real / synthetic",
        _DALI,
        90,
        40,
    ),
    Step(
        "train-jax",
        "train",
        "three nets in JAX, real / synthetic",
        ("gpu", "jax", "fastfeed"),
        75,
        40,
    ),
    Step(
        "train-keras-torch",
        "train_keras",
        "ResNet-50 and ViT-B in Keras on PyTorch",
        ("keras", *_TORCH),
        75,
        40,
    ),
    Step(
        "train-keras-jax",
        "train_keras",
        "the same on JAX",
        ("gpu", "keras", "jax", "fastfeed"),
        75,
        40,
    ),
    Step("profile", "profiled", "the verdict on a starved and a healthy run", _TORCH, 75, 40),
    Step(
        "watch",
        "watched",
        "`fastfeed watch` against the profiler, on the same ten seconds",
        _TORCH,
        45,
        30,
    ),
    Step("memory", "memory", "memory of the GPU over 2,000 batches", _DALI, 50, 30),
    Step("oom", "oom", "out of memory on purpose", _DALI, 30, 20),
    Step(
        "scaling",
        "gpus",
        "real / synthetic by number of GPUs",
        ("gpus", "torch", "fastfeed"),
        300,
        120,
    ),
)
