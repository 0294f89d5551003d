"""A bucket that is gone in the middle of an epoch, for a while or for good; files that are renamed
and renamed back.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.s3 import S3Server

import fastfeed as ff
from fastfeed.errors import StorageError

pytestmark = pytest.mark.slow

OPS = [ff.RandomResizedCrop(16)]


def photos(server: S3Server, bucket: str, count: int = 40) -> ff.ImageFolder:
    for i in range(count):
        server.put(f"{bucket}/{'ab'[i % 2]}/{i}.jpg", jpeg(i))
    return ff.ImageFolder(f"s3://{bucket}", storage=server.options)


def epoch(feed: ff.Feed, pause: float = 0.0) -> list[tuple[list[int], np.ndarray]]:
    got = []
    for batch in feed:
        got.append((batch.ids.tolist(), batch.images.copy()))
        time.sleep(pause)
    return got


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        a == b and np.array_equal(x, y) for (a, x), (b, y) in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    "faults",
    [
        {"share_503": 1.0},
        pytest.param({"share_reset": 1.0}, marks=pytest.mark.nightly),
        {"share_timeout": 1.0, "hang_s": 60.0},
    ],
)
def test_five_seconds_without_s3_change_no_epoch(
    s3: S3Server, caplog: pytest.LogCaptureFixture, faults: dict
):
    source = photos(s3, "outage-of-seconds")
    with ff.Feed(source, OPS, batch=4, threads=2, seed=1) as sound:
        want = [epoch(sound) for _ in range(2)]
    source = ff.ImageFolder("s3://outage-of-seconds", storage=s3.options)
    with ff.Feed(source, OPS, batch=4, threads=2, seed=1, prefetch=0) as feed:
        walk = iter(feed)
        first = next(walk)
        got = [(first.ids.tolist(), first.images.copy())]
        s3.faults(**faults)
        over = threading.Timer(5.0, s3.faults)
        over.start()
        got += [(batch.ids.tolist(), batch.images.copy()) for batch in walk]
        over.join()
        assert same(got, want[0]) and same(epoch(feed), want[1])
        assert not feed.stats().bad
    told = [record.getMessage() for record in caplog.records if record.name == "fastfeed"]
    assert any("s3://outage-of-seconds has not answered for" in line for line in told)
    assert any("s3://outage-of-seconds answers again after" in line for line in told)


def test_a_server_that_is_gone_ends_the_run_with_its_position(caplog: pytest.LogCaptureFixture):
    pytest.importorskip("moto", reason="needs moto: pip install 'moto[s3,server]'")
    with S3Server() as server:
        source = photos(server, "gone", 300)
        feed = ff.Feed(
            source, OPS, batch=4, threads=2, seed=1, prefetch=0, outage=ff.Outage(wait=3)
        )
        for batch in feed:
            last = batch.step
            if last == 3:
                break
    state = feed.state()
    with pytest.raises(
        StorageError, match=r"s3://gone has not answered for .* feed\.state\(\) holds the position"
    ):
        for _ in feed.batches(0, 60):  # beyond what was read ahead
            pass
    assert feed.state() == state and (state["epoch"], state["step"]) == (0, 4)
    assert not feed.stats().bad, "no file is to blame"
    feed.close()
    assert any("trying again; last error:" in r.getMessage() for r in caplog.records), (
        "said after seconds"
    )


def test_a_file_that_was_renamed_and_renamed_back_is_back(tmp_path: Path):
    source = ff.ImageFolder(folder(tmp_path, {"a": 20, "b": 20}))
    path = Path(source.uri(7))
    with ff.Feed(source, OPS, batch=4, threads=2, seed=1, prefetch=0) as feed:
        want = [epoch(feed) for _ in range(3)]
        feed.seek(0)
        path.rename(path.with_suffix(".away"))
        assert 7 not in [i for ids, _ in epoch(feed) for i in ids]
        path.with_suffix(".away").rename(path)
        assert same(epoch(feed), want[1]) and same(epoch(feed), want[2])


def test_what_the_cache_gives_is_no_answer(s3: S3Server, tmp_path: Path):
    """Half of the objects are in the disk cache while the bucket is gone for seconds: the other
    half is not bad.
    """
    source = photos(s3, "outage-with-cache")
    cached = ff.ImageFolder("s3://outage-with-cache", storage=s3.options, cache=tmp_path)
    with ff.Feed(cached, OPS, batch=4, threads=2, seed=1, prefetch=0) as feed:
        walk = iter(feed)
        for _ in range(5):
            next(walk)
    cached = ff.ImageFolder("s3://outage-with-cache", storage=s3.options, cache=tmp_path)
    with ff.Feed(source, OPS, batch=4, threads=2, seed=1) as sound:
        want = epoch(sound)
    with ff.Feed(cached, OPS, batch=4, threads=2, seed=1, prefetch=0) as feed:
        s3.faults(share_reset=1.0)
        over = threading.Timer(5.0, s3.faults)
        over.start()
        assert same(epoch(feed), want)
        over.join()
        assert not feed.stats().bad
