"""The servers of examples/serving run: FastAPI over HTTP, Triton's model by the backend's protocol.

The pixels that a model gets are the bytes that a feed makes of the same files.
"""

from __future__ import annotations

import http.client
import importlib
import io
import json
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from decode.test_recode import resident
from helpers.needs import LazyModule, needs, require
from helpers.photos import BROKEN, broken, folder, jpeg
from PIL import Image

import fastfeed as ff

SERVING = ROOT / "examples" / "serving"
LIMIT_S = 60  # ends a hang
OPS = [ff.Resize(40), ff.CenterCrop(32), ff.Normalize.imagenet()]
NAMES = ("brightness", "bias")
triton: Any = LazyModule("helpers.stand_ins.triton_python_backend_utils")
fastapi = needs("fastapi", "uvicorn")


def example(name: str, path: Path = SERVING) -> ModuleType:
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(path))
        sys.modules.pop(name, None)


def brightness(images: np.ndarray) -> np.ndarray:
    """The model: as many rows as images."""
    return np.stack([images.mean(axis=(1, 2, 3)), np.ones(len(images))], axis=1)


@contextmanager
def served(
    predict: Callable[[np.ndarray], np.ndarray] = brightness, **limits: float
) -> Iterator[int]:
    """The port of the running example, with these limits."""
    module = example("fastapi_app")
    for name, value in limits.items():
        setattr(module, name, value)
    with running(module.create_app(ff.Transform(OPS), predict, NAMES)) as port:
        yield port


@contextmanager
def running(app: Any) -> Iterator[int]:
    """The port of a server."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LIMIT_S)
    assert not thread.is_alive()


def post(port: int, body: Any, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("POST", "/predict", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def half_sent(port: int) -> Iterator[socket.socket]:
    """A request of which half has been sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        client.sendall(bytes(500))
        yield client


@pytest.fixture
def photos(tmp_path: Path) -> ff.ImageFolder:
    return ff.ImageFolder(folder(tmp_path / "photos", {"a": 6, "b": 6}, (60, 80)))


def feed_pixels(photos: ff.ImageFolder) -> np.ndarray:
    """The images of a feed, in the order of the files."""
    with ff.Feed(photos, OPS, batch=4, shuffle=False) as feed:
        return np.concatenate([batch.images.copy() for batch in feed])


def files(photos: ff.ImageFolder) -> list[bytes]:
    return [Path(uri).read_bytes() for uri in photos.uris(range(len(photos)))]


@fastapi
def test_the_model_gets_the_pixels_of_the_feed(photos: ff.ImageFolder) -> None:
    seen: list[np.ndarray] = []

    def predict(images: np.ndarray) -> np.ndarray:
        seen.append(images.copy())
        return brightness(images)

    with served(predict) as port:
        answers = [post(port, file) for file in files(photos)]
    assert not np.ptp(seen[0], axis=(1, 2)).any(), "a gray image is made before any request"
    wanted = feed_pixels(photos)
    assert np.concatenate(seen[1:]).tobytes() == wanted.tobytes()
    rows = [dict(zip(NAMES, row, strict=True)) for row in brightness(wanted).tolist()]
    assert answers == [(200, row) for row in rows]


@fastapi
def test_a_bad_upload_costs_its_request_alone() -> None:
    good = jpeg(1)
    sides = good.index(b"\xff\xc0") + 5
    bomb = good[:sides] + b"\xff\xdc\xff\xdc" + good[sides + 4 :]
    with served() as port:
        for reason in BROKEN:
            status, answer = post(port, broken(reason))
            assert status == 422 and answer["detail"].startswith(f"upload: {reason} (")
        status, answer = post(port, bomb)
        assert status == 422 and "pixels" in answer["detail"]
        assert post(port, good)[0] == 200


@fastapi
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_upload_is_bounded(chunked: bool) -> None:
    with served(MAX_BYTES=1000) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
            how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 1000000000000"
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\n" + how + b"\r\n\r\n")
            if chunked:
                client.sendall(b"7d0\r\n" + bytes(2000) + b"\r\n")  # and more to come
            assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
        assert post(port, broken("not_image"))[0] == 422


@fastapi
def test_a_slow_client_is_sent_away() -> None:
    with served(UPLOAD_S=0.01) as port, half_sent(port) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


@fastapi
def test_a_slow_client_holds_no_other_up() -> None:
    with served() as port, half_sent(port):
        assert post(port, jpeg(1))[0] == 200


@fastapi
def test_a_client_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), served() as port:
        with half_sent(port):
            pass
        assert post(port, jpeg(1))[0] == 200
    assert not caplog.records


@fastapi
def test_requests_at_once_are_bounded() -> None:
    entered, leave = Event(), Event()

    def predict(images: np.ndarray) -> np.ndarray:
        if np.ptp(images, axis=(1, 2)).any():  # not the gray one before requests
            entered.set()
            assert leave.wait(LIMIT_S)
        return brightness(images)

    with served(predict, REQUESTS=1) as port, ThreadPoolExecutor(1) as other:
        first = other.submit(post, port, jpeg(1))
        assert entered.wait(LIMIT_S)
        assert post(port, jpeg(2)) == (503, {"detail": "too many requests at once"})
        leave.set()
        assert first.result()[0] == 200
        assert post(port, jpeg(2))[0] == 200


@fastapi
def test_eight_clients_at_once_get_their_own_answers(photos: ff.ImageFolder) -> None:
    wanted = [(200, pytest.approx(row)) for row in brightness(feed_pixels(photos))[:, 0].tolist()]
    uploads = files(photos)

    def client(first: int) -> list[Any]:
        answers = []
        for i in range(24):
            if i % 5 == 4:
                assert post(port, broken("truncated"))[0] == 422
            row = (first + i) % len(uploads)
            status, answer = post(port, uploads[row])
            answers.append((status, answer["brightness"]) == wanted[row])
        return answers

    with served() as port, ThreadPoolExecutor(8) as clients:
        assert all(all(answers) for answers in clients.map(client, range(8)))


@fastapi
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_stays_flat_over_photographs_of_12_megapixels() -> None:
    with io.BytesIO() as file:
        Image.new("RGB", (4000, 3000), (90, 120, 60)).save(file, "JPEG")
        photo = file.getvalue()

    def client(requests: int) -> None:
        for _ in range(requests):
            assert post(port, photo)[0] == 200

    with served() as port, ThreadPoolExecutor(4) as clients:
        list(clients.map(client, [10] * 4))
        before = resident()
        list(clients.map(client, [10] * 4))
        after = resident()
    assert after - before < 10e6  # one decoded photograph takes 36 MB


# -- Triton


@pytest.fixture
def triton_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[list[Any]], Any]]:
    """Loads the example's model as Triton does, for a saved transform of these ops."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton)
    models = []

    def load(ops: list[Any]) -> Any:
        version = tmp_path / "preprocess" / "1"
        version.mkdir(parents=True)
        with ff.Transform(ops) as transform:
            transform.save(version / "preprocessing.json")
        model = example("model", SERVING / "triton" / "preprocess" / "1").TritonPythonModel()
        config = json.dumps(triton_config())
        args = {"model_repository": str(version.parent), "model_version": "1"}
        model.initialize(args | {"model_config": config})
        models.append(model)
        return model

    yield load
    for model in models:
        model.finalize()


def triton_config() -> dict[str, Any]:
    """The parts of config.pbtxt that the model asks for."""
    text = (SERVING / "triton" / "preprocess" / "config.pbtxt").read_text()
    blocks = re.findall(
        r'(input|output) \[\s+\{\s+name: "(\w+)".*?\s+data_type: (\w+)\s+dims: \[(.*?)\]', text
    )
    config: dict[str, Any] = {"input": [], "output": []}
    for side, name, dtype, dims in blocks:
        sizes = [int(size) for size in dims.split(",")]
        config[side].append({"name": name, "data_type": dtype, "dims": sizes})
    return config


def images_request(*blobs: bytes) -> Any:
    items = np.array(blobs, object).reshape(-1, 1)  # TYPE_STRING, dims [1], in a batch
    return triton.InferenceRequest([triton.Tensor("IMAGE", items)])


def test_triton_gets_the_pixels_of_the_feed_and_an_error_for_a_bad_request(
    triton_model: Callable[[list[Any]], Any], photos: ff.ImageFolder
) -> None:
    ops = [ff.Resize(110), ff.CenterCrop(96), ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    model = triton_model(ops)
    first, second, third, *_ = files(photos)
    requests = [
        images_request(first, second),
        images_request(third, broken("truncated")),
        images_request(third),
        images_request(broken("empty")),
    ]
    responses = model.execute(requests)
    with ff.Feed(photos, ops, batch=3, shuffle=False) as feed:
        wanted = next(iter(feed)).images.copy()
    pixels = [response.output_tensors() for response in responses]
    assert [len(tensors) for tensors in pixels] == [1, 0, 1, 0]
    assert pixels[0][0].name() == "PIXELS"
    assert pixels[0][0].as_numpy().tobytes() == wanted[:2].tobytes()
    assert pixels[2][0].as_numpy().tobytes() == wanted[2:].tobytes()
    errors = [responses[1].error(), responses[3].error()]
    assert [error.code() for error in errors] == [triton.TritonError.INVALID_ARG] * 2
    assert errors[0].message().startswith("image 1: truncated (")
    assert errors[1].message().startswith("image 0: empty (")


def test_triton_refuses_a_config_of_other_pixels(
    triton_model: Callable[[list[Any]], Any],
) -> None:
    with pytest.raises(ValueError, match=r"PIXELS is float32 \(32, 32, 3\) here"):
        triton_model(OPS)


# -- all of it


@pytest.mark.slow
def test_a_model_is_trained_saved_and_served(tmp_path: Path) -> None:
    require("fastapi", "uvicorn", "keras", "tensorflow")
    for part in ("train", "val"):
        folder(tmp_path / "data" / part, {"a": 16, "b": 16}, (120, 100))
    example("save_model").save(tmp_path / "served", tmp_path / "data", epochs=1)
    with running(example("fastapi_app").load(tmp_path / "served")) as port:
        status, answer = post(port, jpeg(1, (300, 200)))
    assert status == 200 and list(answer) == ["a", "b"]
    assert sum(answer.values()) == pytest.approx(1)
