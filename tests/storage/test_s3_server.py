"""The S3 server that other tests rely on: it answers as moto does, goes wrong as ordered, and logs
every request.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import random
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.s3 import SIGNED, S3Server, peak
from helpers.s3_faults import Entry, Faults

BLOB = random.Random(0).randbytes(1024)
SPANS = {  # what a Range asks for: [start, stop), or None where nothing of it exists
    "bytes=0-": (0, 1024),
    "bytes=0-0": (0, 1),
    "bytes=10-19": (10, 20),
    "bytes=1000-": (1000, 1024),
    "bytes=1000-9999": (1000, 1024),
    "bytes=1023-1023": (1023, 1024),
    "bytes=-24": (1000, 1024),
    "bytes=-9999": (0, 1024),
    "bytes=1024-": None,
    "bytes=1024-2000": None,
    "bytes=-0": None,
}
# S3 then sends the whole object
NO_SPANS = ("bytes=20-10", "bytes=-", "bytes=x-9", "bytes=0-1,5-6", "bytes=--5")
# holds, and has moto answer
NOT_REMEMBERED = {"if-unmodified-since": "Fri, 01 Jan 2100 00:00:00 GMT"}


@pytest.fixture(scope="module")
def etag(s3_process: S3Server) -> str:
    s3_process.put("test-s3/bucket made", b"")
    digest = base64.b64encode(hashlib.sha256(BLOB).digest()).decode()
    named = {"x-amz-sdk-checksum-algorithm": "SHA256", "x-amz-checksum-sha256": digest}
    return ask(s3_process, "test-s3/a.bin", named, method="PUT", body=BLOB)[1]["etag"]


def ask(
    s3: S3Server,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes = b"",
    signed: bool = True,
):
    """One request: status, headers, body."""
    signature = {"authorization": SIGNED["authorization"]} if signed else {}
    connection = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=30)
    try:
        connection.request(method, "/" + path, body, signature | (headers or {}))
        reply = connection.getresponse()
        return (
            reply.status,
            {name.lower(): value for name, value in reply.getheaders()},
            reply.read(),
        )
    finally:
        connection.close()


def without_id(body: bytes) -> bytes:
    """An error's text without what differs from request to request."""
    return re.sub(rb"<RequestId>.*?</RequestId>", b"", body)


@pytest.mark.parametrize("span", SPANS)
def test_span_of_an_object(s3, etag, span):
    status, headers, body = ask(s3, "test-s3/a.bin", {"range": span})
    if SPANS[span] is None:
        assert status == 416
        assert b"<Code>InvalidRange</Code>" in body
    else:
        start, stop = SPANS[span]
        assert (status, body) == (206, BLOB[start:stop])
        assert headers["content-range"] == f"bytes {start}-{stop - 1}/1024"
        assert headers["content-length"] == str(stop - start)
        assert headers["etag"] == etag


@pytest.mark.parametrize("span", NO_SPANS)
def test_span_that_makes_no_sense_is_ignored(s3, etag, span):
    status, headers, body = ask(s3, "test-s3/a.bin", {"range": span})
    assert (status, body) == (200, BLOB)
    assert "content-range" not in headers


@pytest.mark.parametrize("span", ["", *SPANS, *NO_SPANS])
@pytest.mark.parametrize("also", ["", "if-match", "if-match, wrong", "x-amz-checksum-mode"])
def test_moto_says_the_same(s3, etag, span, also):
    extra = {"if-match": etag, "if-match, wrong": '"other"', "x-amz-checksum-mode": "ENABLED"}
    headers = ({"range": span} if span else {}) | (
        {also.split(",")[0]: extra[also]} if also else {}
    )
    ours = ask(s3, "test-s3/a.bin", headers)
    status, named, body = ask(s3, "test-s3/a.bin", headers | NOT_REMEMBERED)
    assert (ours[0], without_id(ours[2])) == (status, without_id(body))
    its_own = {"date": "", "x-amzn-requestid": ""}
    assert ours[1] | its_own == named | its_own
    assert ("x-amz-checksum-sha256" in named) == (also == "x-amz-checksum-mode" and body == BLOB)


def test_conditions(s3, etag):
    assert ask(s3, "test-s3/a.bin", {"if-match": etag, "range": "bytes=1-4"})[2] == BLOB[1:5]
    assert ask(s3, "test-s3/a.bin", {"if-match": '"other"', "range": "bytes=1-4"})[0] == 412
    assert ask(s3, "test-s3/a.bin", {"if-none-match": etag})[0] == 304
    assert ask(s3, "test-s3/a.bin", {"if-none-match": '"other"'})[2] == BLOB


def test_head(s3, etag):
    status, headers, body = ask(s3, "test-s3/a.bin", method="HEAD")
    assert (status, headers["content-length"], headers["etag"], body) == (200, "1024", etag, b"")


def test_what_is_not_there_and_what_is_not_allowed(s3, etag):
    status, _, body = ask(s3, "test-s3/none.bin", {"range": "bytes=0-9"})
    assert status == 404
    assert b"<Code>NoSuchKey</Code>" in body
    status, _, body = ask(s3, "test-s3-none/a.bin")
    assert status == 404
    assert b"<Code>NoSuchBucket</Code>" in body
    assert ask(s3, "test-s3/a.bin", signed=False)[0] == 403
    s3.put("test-s3/public.bin", BLOB, public=True)
    assert ask(s3, "test-s3/public.bin", {"range": "bytes=0-9"}, signed=False)[2] == BLOB[:10]


def test_write_is_seen_by_the_next_read(s3):
    for blob in (b"one", b"two", b""):
        s3.put("test-s3-writes/a b.bin", blob)
        assert ask(s3, "test-s3-writes/a%20b.bin")[2] == blob
    s3.delete("test-s3-writes/a b.bin")
    assert ask(s3, "test-s3-writes/a%20b.bin")[0] == 404


def test_a_client_writes_lists_reads_and_removes(s3):
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs: pip install 'fastfeed[s3]'")
    fs = s3fs.S3FileSystem(**s3.options, skip_instance_cache=True)
    fs.mkdir("test-s3-client")
    names = [f"test-s3-client/in/{i}.bin" for i in range(3)]
    for name in names:
        fs.pipe(name, name.encode())
    assert fs.find("test-s3-client") == names
    assert fs.cat_file(names[1], start=5, end=20) == names[1][5:20].encode()
    assert fs.cat(names) == {name: name.encode() for name in names}
    fs.rm("test-s3-client/in", recursive=True)  # one POST for all of them
    for name in names:
        with pytest.raises(FileNotFoundError):
            fs.cat_file(name, start=5, end=20)
    assert "POST" in {entry.method for entry in s3.log()}


def test_folder_is_put_with_its_names(s3, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x é.txt").write_text("x")
    (tmp_path / "a.txt").write_text("a")
    assert s3.put_folder("test-s3-folder/in", tmp_path) == [
        "test-s3-folder/in/a.txt",
        "test-s3-folder/in/b/x é.txt",
    ]
    listing = ask(s3, "test-s3-folder?list-type=2")[2].decode()
    assert "<Key>in/a.txt</Key>" in listing
    assert "<Key>in/b/x é.txt</Key>" in listing
    s3.warm(["test-s3-folder/in/b/x é.txt"])
    assert [entry.query for entry in s3.log()] == [
        "list-type=2"
    ]  # what the test does to the server is no traffic


def test_errors_come_in_the_form_of_s3(s3, etag):
    for fault, code in (("503", "SlowDown"), ("500", "InternalError")):
        s3.faults(**{f"share_{fault}": 1.0})
        status, headers, body = ask(s3, "test-s3/a.bin")
        assert (status, headers["content-type"]) == (int(fault), "application/xml")
        assert f"<Code>{code}</Code>" in body.decode()
        status, _, body = ask(s3, "test-s3/a.bin", method="HEAD")
        assert (status, body) == (int(fault), b"")


def test_connection_that_ends_early(s3, etag):
    s3.faults(share_drop=1.0)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(s3, "test-s3/a.bin", {"range": "bytes=0-99"})
    s3.faults(share_cut=1.0)
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(s3, "test-s3/a.bin", {"range": "bytes=0-99"})
    assert caught.value.partial == BLOB[:50]
    s3.faults(share_reset=1.0)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        ask(s3, "test-s3/a.bin", {"range": "bytes=0-99"})
    found = [(entry.status, entry.sent, entry.fault) for entry in s3.log()]
    assert found == [(0, 0, "drop"), (206, 50, "cut"), (206, 50, "reset")]


def test_requests_that_get_no_reply_stay_in_flight(s3, etag):
    s3.faults(share_timeout=1.0)
    hung = [http.client.HTTPConnection("127.0.0.1", s3.port) for _ in range(4)]
    try:
        for i, connection in enumerate(hung):
            connection.request("GET", f"/test-s3/a.bin?x={i}")
        next(_ for _ in range(100_000) if len(s3.log()) == 4)
        assert {(entry.status, entry.end_s, entry.fault) for entry in s3.log()} == {
            (0, None, "timeout")
        }
        assert peak(s3.log()) == 4
    finally:
        for connection in hung:
            connection.close()
    # the server has noticed that the client is gone
    next(_ for _ in range(100_000) if all(entry.end_s for entry in s3.log()))
    assert {entry.status for entry in s3.log()} == {0}


def test_latency(s3, etag):
    s3.faults(latency_s=0.02, share_slow=1.0, slow_factor=3.0)
    assert ask(s3, "test-s3/a.bin")[2] == BLOB
    (entry,) = s3.log()
    assert entry.fault == "slow"
    assert entry.end_s - entry.start_s >= 0.06


def test_only_some_requests_and_only_the_first(s3, etag):
    s3.faults(share_503=1.0, attempts=1, only=r"^GET .*a\.bin")
    assert ask(s3, "test-s3/a.bin", method="HEAD")[0] == 200
    spans = [{"range": "bytes=0-9"}, {"range": "bytes=5-9"}]
    assert [ask(s3, "test-s3/a.bin", spans[i])[0] for i in (0, 1, 0, 1)] == [503, 503, 206, 206]


def test_server_without_ranges(s3, etag):
    s3.faults(ranges=False)
    assert ask(s3, "test-s3/a.bin", {"range": "bytes=5-9"})[::2] == (200, BLOB)
    s3.faults()
    assert ask(s3, "test-s3/a.bin", {"range": "bytes=5-9"})[::2] == (206, BLOB[5:10])


def test_log_leaves_nothing_out(s3, etag):
    spans = [f"bytes={i}-{i + 9}" for i in range(200)]
    s3.faults(share_503=0.2, seed=3)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda span: ask(s3, "test-s3/a.bin", {"range": span}), spans))
    log = {entry.range: entry for entry in s3.log()}
    assert [log[span].status for span in spans] == [status for status, _, _ in replies]
    expected = [
        Faults(share_503=0.2, seed=3).outcome(f"GET /test-s3/a.bin {span}", 0)[0] for span in spans
    ]
    assert [log[span].fault for span in spans] == expected
    assert all((entry.method, entry.path) == ("GET", "/test-s3/a.bin") for entry in s3.log())
    assert {entry.sent for entry in s3.log() if entry.status == 206} == {10}
    assert 1 <= peak(s3.log()) <= 8


def test_shares():
    faults = Faults(
        latency_s=0.1,
        share_slow=0.25,
        share_503=0.1,
        share_timeout=0.02,
        share_cut=0.1,
        share_reset=0.03,
    )
    drawn = [faults.outcome(f"GET /b/{i}", i % 3) for i in range(20_000)]
    found = Counter(fault for fault, _ in drawn)
    for fault, share in (
        ("503", 0.1),
        ("500", 0.0),
        ("timeout", 0.02),
        ("cut", 0.1),
        ("reset", 0.03),
    ):
        assert found[fault] / len(drawn) == pytest.approx(share, abs=0.01)
    assert sum(latency_s == 1.0 for _, latency_s in drawn) / len(drawn) == pytest.approx(
        0.25, abs=0.01
    )
    assert drawn == [faults.outcome(f"GET /b/{i}", i % 3) for i in range(20_000)]
    assert [Faults(share_503=0.5, seed=seed).outcome("GET /b/k", 0)[0] for seed in range(9)].count(
        "503"
    ) not in (0, 9)


def test_peak_counts_what_overlaps():
    def entry(start_s: float, end_s: float | None) -> Entry:
        return Entry("GET", "/b/k", "", "", start_s, end_s)

    assert peak([]) == 0
    assert peak([entry(0, 1), entry(1, 2), entry(2, 3)]) == 1
    assert peak([entry(0, 5), entry(1, 2), entry(1.5, None), entry(3, 4)]) == 3


def test_server_ends_when_its_owner_is_killed():
    pytest.importorskip("moto", reason="the S3 server needs moto: pip install 'moto[s3,server]'")
    code = (
        "import os; from helpers.s3 import S3Server\n"
        "server = S3Server(); print(server.url, flush=True); os.kill(os.getpid(), 9)"
    )
    tests = Path(__file__).parents[1]
    ended = subprocess.run(  # returns once its pipes are closed, so not before the server has ended
        [sys.executable, "-c", code],
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -9
    assert ended.stdout.startswith("http://127.0.0.1:")
