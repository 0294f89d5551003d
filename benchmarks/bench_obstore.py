"""Would obstore (a Rust client) read samples from S3 at less cost than s3fs?

Byte ranges of tar shards, 64 in flight, 40 ms of latency: our storage over s3fs, s3fs without it,
obstore without it, and our storage over obstore.

The server is the tests' (tests/helpers/s3.py), in another process on the same two cores, so the
processor time per read of this process says more than the rate. Every byte that comes is compared.
Needs `pip install obstore`.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rounds import DATA, arguments, finish, interleaved, ratio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import obstore
import s3fs
from helpers.s3 import S3Server
from obstore.store import S3Store

from fastfeed.storage import s3 as s3_module
from fastfeed.storage.reads import ByteRange
from fastfeed.storage.storage import Storage

OBJECTS, IN_FLIGHT, LATENCY_S = 8, 64, 0.04


def main() -> None:
    options = arguments(__doc__, rounds=7)
    images = [path.read_bytes() for path in sorted((DATA / "imagenet-sample").glob("*.JPEG"))]
    with S3Server() as server:
        blob = b"".join(images)
        keys = [f"objects/{k}" for k in range(OBJECTS)]
        for key in keys:
            server.put(f"bench/{key}", blob)
        server.warm([f"bench/{key}" for key in keys])
        ends = np.cumsum([len(image) for image in images]).tolist()
        ranges = [
            (key, end - len(image), end)
            for key in keys
            for image, end in zip(images, ends, strict=True)
        ]
        order = np.random.default_rng(0).permutation(len(ranges)).tolist()
        ranges = [ranges[i] for i in order]
        sums = [zlib.crc32(blob[start:end]) for _, start, end in ranges]

        def checked(parts: list[Any]) -> int:
            assert [zlib.crc32(part) for part in parts] == sums
            return len(parts)

        s3_options = server.options
        config = {
            "endpoint": server.url,
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
            "bucket": "bench",
        }
        store = S3Store(client_options={"allow_http": True}, config=config)
        loop = asyncio.new_event_loop()

        async def gathered(read: Any) -> list[Any]:
            limit = asyncio.Semaphore(IN_FLIGHT)

            async def one(key: str, start: int, end: int) -> Any:
                async with limit:
                    return await read(key, start, end)

            return await asyncio.gather(*(one(*each) for each in ranges))

        system = s3fs.S3FileSystem(
            **s3_options,
            asynchronous=True,
            loop=loop,
            config_kwargs={"max_pool_connections": 2 * IN_FLIGHT},
        )

        async def by_s3fs(key: str, start: int, end: int) -> bytes:
            return await system._cat_file(f"bench/{key}", start=start, end=end)

        async def by_obstore(key: str, start: int, end: int) -> Any:
            return await obstore.get_range_async(store, key, start=start, end=end)

        byte_ranges = [ByteRange(f"s3://bench/{key}", start, end) for key, start, end in ranges]
        storage = Storage(s3_options, in_flight=IN_FLIGHT)
        without = Storage(s3_options, in_flight=IN_FLIGHT)
        with mock.patch.object(s3_module, "obstore", None):
            without.read(byte_ranges[:1])  # decides how this one reads the bucket

        server.faults(latency_s=LATENCY_S)
        result = interleaved(
            options.rounds,
            {
                "our storage over s3fs": lambda: checked(without.read(byte_ranges)),
                "s3fs": lambda: checked(loop.run_until_complete(gathered(by_s3fs))),
                "our storage over obstore": lambda: checked(storage.read(byte_ranges)),
                "obstore": lambda: checked(loop.run_until_complete(gathered(by_obstore))),
            },
        )
    base = "our storage over s3fs"
    others = [name for name in result if name != base]
    cost = {name: row["cpu_ms_per_image"] for name, row in result.items()}
    finish(
        "What does a read of 110 kB from S3 cost with obstore, and with s3fs?",
        {
            "result": result,
            "rate / our storage over s3fs": {name: ratio(result, name, base) for name in others},
            "CPU of our storage over s3fs / CPU": {
                name: round(cost[base] / cost[name], 2) for name in others
            },
        },
        options.out,
    )


if __name__ == "__main__":
    main()
