"""The main jobs of an installed fastfeed, small: a Keras fit, a preprocessing job, an analysis, the
doctor.

Run it with the Python of the installation, in an empty folder. Exits with an AssertionError that
says what is wrong. `--no-kernel` expects an installation without the native extension, which plans
jobs and analyzes traces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
from PIL import Image


def photographs(folder: Path) -> None:
    """Two classes of 24 JPEGs, which differ in hue: baseline and progressive."""
    for hue, name in enumerate(("blue", "red")):
        (folder / name).mkdir(parents=True)
        for number in range(24):
            pixels = np.random.default_rng(number).integers(0, 90, (96, 128, 3)).astype(np.uint8)
            pixels[..., 2 - 2 * hue] += 150
            Image.fromarray(pixels).save(
                folder / name / f"{number}.jpg", quality=90, progressive=number % 2 == 1
            )


def fit(folder: Path, work: Path) -> None:
    import keras

    import fastfeed as ff

    ops = [ff.RandomResizedCrop(32), ff.RandomFlip(), ff.Normalize.imagenet()]
    with ff.Feed(
        ff.ImageFolder(folder), ops, batch=8, seed=0, quarantine=str(work / "bad.jsonl")
    ) as feed:
        layers = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2, "softmax")]
        model = keras.Sequential([keras.Input((32, 32, 3)), *layers])
        model.compile(
            keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        history = model.fit(feed.to_keras(), epochs=4, verbose=0).history
        assert not feed.stats().bad, feed.stats()
    assert history["loss"][-1] < history["loss"][0], history


def build(work: Path) -> None:
    import fastfeed as ff

    command("preprocess", work / "photos", work / "shards", "--size", "64")
    shards = ff.TarShards(str(work / "shards" / "*.tar"))
    assert len(shards) == 48, len(shards)
    with ff.Feed(shards, [ff.CenterCrop(64)], batch=48) as feed:
        assert next(iter(feed)).images.shape == (48, 64, 64, 3)


def trace(path: Path) -> None:
    """A PyTorch trace of 20 steps, each with 10 ms of waiting and a kernel of 5 ms."""
    events = []
    for step in range(20):
        start = 15_000 * step
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append(
            common
            | {"name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": start, "dur": 15_000}
        )
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events.append(
            common | {"name": loader, "cat": "user_annotation", "ts": start, "dur": 9_900}
        )
        ids = {"correlation": step + 1, "device": 0, "stream": 7}
        launch = common | {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "args": ids}
        events.append(launch | {"ts": start + 9_950, "dur": 10})
        kernel = {"ph": "X", "pid": 0, "tid": 7, "name": "gemm", "cat": "kernel", "args": ids}
        events.append(kernel | {"ts": start + 10_000, "dur": 5_000})
    devices = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 1 << 36}]
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events})
    )


def command(*arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    program = Path(sys.executable).parent / "fastfeed"
    done = subprocess.run(
        [str(program), *map(str, arguments)], check=False, capture_output=True, text=True
    )
    assert done.returncode in codes, (
        f"fastfeed {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}"
    )
    return done.stdout


def main() -> None:
    kernel = "--no-kernel" not in sys.argv
    import fastfeed
    from fastfeed.runtime.extension import is_built

    here = Path(fastfeed.__file__).resolve()
    assert Path(sys.prefix).resolve() in here.parents, (
        f"fastfeed must be installed in {sys.prefix}, got {here}"
    )
    assert is_built() == kernel, f"the native extension must {'' if kernel else 'not '}be there"
    # without the native extension something has to be fixed
    report = json.loads(command("doctor", "--json", codes=(0,) if kernel else (0, 1)))
    assert (report["kernel"] is not None) == kernel, report["kernel"]
    print("doctor:", report["kernel"])
    work = Path.cwd()
    photographs(work / "photos")
    if kernel:
        fit(work / "photos", work)
        print("fit: the loss falls")
        build(work)
    else:
        command("preprocess", work / "photos", work / "shards", "--size", "64", "--dry-run")
    print("preprocess: 48 images", "in shards" if kernel else "planned")
    trace(work / "trace.json")
    result = json.loads(command("analyze", work / "trace.json", "--json"))
    assert result["verdict"]["bound"] == "input", result["verdict"]
    print("analyze:", result["verdict"]["headline"])


if __name__ == "__main__":
    main()
