"""A photograph in, probabilities out: with the pixels that the model was trained on.

    python examples/serving/save_model.py --folder served
    python examples/serving/fastapi_app.py --folder served
    curl --data-binary @photo.jpg http://127.0.0.1:8000/predict

A request holds memory and a thread for no longer than the limits below allow, and an upload that
is no image costs its own request, which is answered with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from PIL import Image
from starlette.requests import ClientDisconnect

import fastfeed as ff

MAX_BYTES = 20 << 20  # of an upload
UPLOAD_S = 10.0  # seconds that a client may take to send it
REQUESTS = 32  # with an upload in memory at once
WORKERS = os.cpu_count() or 1  # images decoded at once: more would only slow each other down


def create_app(
    transform: ff.Transform, predict: Callable[[np.ndarray], np.ndarray], names: Sequence[str]
) -> FastAPI:
    """The server: a saved transform, a model from a batch of images to probabilities, its classes.

    The transform is closed with the server.
    """
    model = Lock()  # Keras's models are not safe to call from several threads on every backend

    def probabilities(upload: bytearray) -> dict[str, float]:
        image = transform.one(upload)
        with model:
            (row,) = np.asarray(predict(image[None]))
        return dict(zip(names, row.tolist(), strict=True))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with transform, ThreadPoolExecutor(WORKERS) as app.state.workers:
            probabilities(blank_upload())  # opens threads, compiles the model
            gc.freeze()  # no request waits for the collector to visit what was imported
            app.state.slots = asyncio.BoundedSemaphore(REQUESTS)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def answer(request: Request) -> dict[str, float]:
        if app.state.slots.locked():
            raise HTTPException(503, "too many requests at once", {"Retry-After": "1"})
        async with app.state.slots:
            upload = await received(request)
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(app.state.workers, probabilities, upload)
            except ff.errors.SampleError as error:
                raise HTTPException(422, str(replace(error.failure, uri="upload"))) from None

    return app


def blank_upload() -> bytearray:
    """A gray JPEG."""
    with io.BytesIO() as file:
        Image.new("RGB", (512, 512), "gray").save(file, "JPEG")
        return bytearray(file.getvalue())


async def received(request: Request) -> bytearray:
    """The upload, if it is neither too large nor too slow."""
    if int(request.headers.get("content-length", 0)) > MAX_BYTES:
        raise HTTPException(413, f"an upload has at most {MAX_BYTES:,} bytes")
    upload = bytearray()

    async def receive() -> None:
        async for chunk in request.stream():
            upload.extend(chunk)
            if len(upload) > MAX_BYTES:
                raise HTTPException(413, f"an upload has at most {MAX_BYTES:,} bytes")

    try:
        await asyncio.wait_for(receive(), UPLOAD_S)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"an upload has {UPLOAD_S:g} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the client left") from None
    return upload


def load(folder: Path) -> FastAPI:
    """The server of what `save_model.py` saved."""
    import keras

    model = keras.saving.load_model(folder / "model.keras")
    transform = ff.Transform.load(folder / "preprocessing.json")
    names = json.loads((folder / "classes.json").read_text())
    return create_app(transform, model.predict_on_batch, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default="served")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(load(options.folder), port=options.port)


if __name__ == "__main__":
    main()
