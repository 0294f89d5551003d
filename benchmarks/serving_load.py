"""The FastAPI example under load, for bench_transform: `python serving_load.py PORT THREADS` serves.

Latencies at half of the load count from the time at which a request was due, so one that waits for
another is not flattered. The client runs on the same cores. Next to them is what a queue makes of
requests that take one time each, which no server can be better than.
"""

from __future__ import annotations

import asyncio
import heapq
import io
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rounds import cpu_seconds, rss_mb

import fastfeed as ff

CLIENTS, CONNECTIONS = 4, 32
WARM, LONE, LARGE = 50, 500, 1000
SECONDS = 10.0
THREADS = (1, 2, 4)  # that decode images
QUEUED = 200_000  # requests that are simulated
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serve(port: int, threads: int) -> None:
    """The example, with a model of one product: the figures are those of the images.

    `threads`: that decode images; 0: as many as in the example.
    """
    import uvicorn

    sys.path.append(str(Path(__file__).parents[1] / "examples" / "serving"))
    import fastapi_app

    fastapi_app.WORKERS = threads or fastapi_app.WORKERS
    weights = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    transform = ff.Transform(ff.recipes.imagenet_eval(224))
    app = fastapi_app.create_app(
        transform, lambda images: images.mean(axis=(1, 2)) @ weights, "abcde"
    )
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def measured(folder: Path) -> dict[str, Any]:
    """All figures: latencies in milliseconds, requests per second, memory in MB."""
    blobs = [path.read_bytes() for path in sorted(folder.iterdir())]
    small = sorted(blobs, key=len)[len(blobs) // 2]
    with Image.open(io.BytesIO(small)) as image:
        large = io.BytesIO()
        image.resize((4000, 3000)).save(large, "JPEG", quality=90)
    with served() as (port, pid):
        figures = asyncio.run(all_figures(port, pid, small, large.getvalue()))
    rate = figures["requests_per_second"] / 2
    for threads in THREADS:
        with served(threads) as (port, _):
            figures[f"half_load_ms, {threads} threads"] = asyncio.run(half_load(port, small, rate))
    return figures | {"queue_p99_by_median": {f"M/D/{n}": queue(n) for n in (1, 2)}}


def queue(servers: int) -> float:
    """p99 by median at half load, of requests that take one time each and come at random."""
    rng = random.Random(0)
    free_at, due, times = [0.0] * servers, 0.0, []
    for _ in range(QUEUED):
        due += rng.expovariate(servers / 2)
        end = max(due, free_at[0]) + 1
        heapq.heapreplace(free_at, end)
        times.append(end - due)
    return round(float(np.percentile(times, 99) / np.median(times)), 2)


async def half_load(port: int, body: bytes, rate: float) -> dict[str, float]:
    """Latencies of another server at this rate."""
    opened = [asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    connections = list(await asyncio.gather(*opened))
    await closed(connections[:CLIENTS], body, CLIENTS * WARM)
    times = await open_loop(connections, body, rate)
    for _, writer in connections:
        writer.close()
    return percentiles(times)


@contextmanager
def served(threads: int = 0) -> Iterator[tuple[int, int]]:
    """Port and process id of the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, str(port), str(threads)])
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


async def all_figures(port: int, pid: int, small: bytes, large: bytes) -> dict[str, Any]:
    connections = [await asyncio.open_connection("127.0.0.1", port)]
    first = await request(connections[0], small)
    # not before: the first request would wait until all are accepted
    for _ in range(CONNECTIONS - 1):
        connections.append(await asyncio.open_connection("127.0.0.1", port))
    lone = (await closed(connections[:1], small, WARM + LONE))[0][WARM:]
    busy = cpu_seconds(pid)
    times, seconds = await closed(connections[:CLIENTS], small, 4 * LONE)
    busy = cpu_seconds(pid) - busy
    most = len(times) / seconds
    half = await open_loop(connections, small, most / 2)
    await closed(connections[:CLIENTS], large, LARGE // 10)
    before = round(rss_mb(pid), 1)
    await closed(connections[:CLIENTS], large, LARGE)
    after = round(rss_mb(pid), 1)
    for _, writer in connections:
        writer.close()
    return {
        "one_client_ms": percentiles(lone),
        "first_request_ms": round(1e3 * first, 2),
        "requests_per_second": round(most, 1),
        "cpu_ms_per_request": round(1e3 * busy / len(times), 2),
        "half_load_ms": percentiles(half),
        "p99_by_median": round(float(np.percentile(half, 99) / np.median(half)), 2),
        "rss_mb": {f"after {LARGE // 10} of 12 megapixels": before, f"after {LARGE} more": after},
    }


async def request(connection: Connection, body: bytes) -> float:
    """Seconds that an answer took."""
    reader, writer = connection
    begin = time.perf_counter()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
    names = json.loads(await reader.readexactly(length))
    assert answer.startswith(b"http/1.1 200"), names
    return time.perf_counter() - begin


async def closed(
    connections: list[Connection], body: bytes, count: int
) -> tuple[list[float], float]:
    """Seconds of each request, and of all: each connection sends its next when it has an answer."""

    async def client(connection: Connection) -> list[float]:
        return [await request(connection, body) for _ in range(count // len(connections))]

    begin = time.perf_counter()
    times = await asyncio.gather(*map(client, connections))
    return [each for some in times for each in some], time.perf_counter() - begin


async def open_loop(connections: list[Connection], body: bytes, rate: float) -> list[float]:
    """Seconds of requests that come at random times, at this rate."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        free.put_nowait(connection)
    times: list[float] = []
    rng, begin = random.Random(0), time.perf_counter()

    async def one(due: float) -> None:
        connection = await free.get()
        await request(connection, body)
        times.append(time.perf_counter() - begin - due)
        free.put_nowait(connection)

    due, tasks = 0.0, []
    while due < SECONDS:
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return times


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{p}": round(1e3 * float(np.percentile(seconds, p)), 2) for p in (50, 90, 99)}


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
