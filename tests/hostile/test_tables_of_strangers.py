"""Tables and folders made by someone else: a job must not pack what only its user may see."""

from __future__ import annotations

import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.small_jobs import InlineEngine

from fastfeed.preprocess.job import job as job_module

SMALL = ("--size", "24")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())
    (tmp_path / "set").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "set" / "good.jpg").write_bytes(jpeg(1, (40, 56)))
    (tmp_path / "private" / "photo.jpg").write_bytes(jpeg(2, (40, 56)))
    (tmp_path / "private" / "passwords.txt").write_bytes(b"hunter2:rosebud\n")


def packed(folder: str = "shards") -> list[str]:
    """Names of the photographs in the shards."""
    names = []
    for path in sorted(Path(folder).glob("*.tar")):
        with tarfile.open(path) as tar:
            names += [json.load(tar.extractfile(m))["uri"] for m in tar if m.name.endswith(".json")]  # type: ignore[arg-type]
    return sorted(Path(name).name for name in names)


def refused(folder: str = "shards") -> dict[str, str]:
    """Reasons of bad photographs, by name."""
    rows = [
        json.loads(line) for line in next(Path(folder).rglob("bad.jsonl")).read_text().splitlines()
    ]
    return {row["uri"].rpartition("/")[2]: row["reason"] for row in rows}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    seen: list[str]
    to: str


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        if self.path == "/leave.jpg":
            self.send_response(302)
            self.send_header("Location", self.server.to)
            self.end_headers()
            return
        body = Path("table.csv").read_bytes() if self.path == "/table.csv" else jpeg(3, (40, 56))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[list[_Server]]:
    """Two; the first redirects to the second."""
    both = [_Server(("127.0.0.1", 0), _Request) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in both]
    for server, thread in zip(both, threads, strict=True):
        server.seen, server.to = [], f"http://127.0.0.1:{both[1].server_address[1]}/inside.jpg"
        thread.start()
    yield both
    for server, thread in zip(both, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def host(server: _Server) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def test_a_table_reads_below_its_folder_alone(servers: list[_Server], tmp_path: Path) -> None:
    (tmp_path / "set" / "link.jpg").symlink_to(tmp_path / "private" / "photo.jpg")
    private = tmp_path / "private"
    rows = [
        "good.jpg",
        f"{private}/photo.jpg",
        f"file://{private}/passwords.txt",
        "../private/photo.jpg",
        "link.jpg",
        f"http://{host(servers[0])}/x.jpg",
        f"https://example.com@{host(servers[0])}/y.jpg",
    ]
    Path("set/t.csv").write_text("\n".join(["path", *rows]))
    code, said = preprocess("set/t.csv", "shards", *SMALL)
    assert code == 0 and packed() == ["good.jpg"], said
    assert (
        set(refused().values()) == {"not_allowed"} and len(refused()) == 6 - 1
    )  # two are called photo.jpg
    assert not servers[0].seen
    bad = next(Path("shards").rglob("bad.jsonl")).read_text()
    assert f"--allow-path {private}" in bad and f"--allow-host {host(servers[0])}" in bad
    assert "hunter2" not in bad
    code, said = preprocess(
        "retry", "set/t.csv", "shards", "--reason", "not_allowed", "--allow-path", str(private)
    )
    assert code == 0 and packed() == ["good.jpg", "link.jpg", "photo.jpg", "photo.jpg"], said
    assert refused()["passwords.txt"] == "not_image"
    for path in Path("shards").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path


def test_a_table_of_which_nothing_may_be_read_says_what_to_add(tmp_path: Path) -> None:
    private = tmp_path / "private"
    Path("set/t.csv").write_text(f"path\n{private}/photo.jpg\n")
    code, said = preprocess("set/t.csv", "shards", *SMALL)
    assert code == 2 and f"--allow-path {private}" in said and not list(Path().glob("shards/*.tar"))
    code, said = preprocess("set/t.csv", "shards", *SMALL, "--allow-path", str(private))
    assert code == 0 and packed() == ["photo.jpg"], said


def test_redirects_are_held_to_the_same_rules(servers: list[_Server]) -> None:
    Path("table.csv").write_text("path\nown.jpg\nleave.jpg\n")
    table = f"http://{host(servers[0])}/table.csv"
    code, said = preprocess(table, "shards", *SMALL)
    assert code == 0 and packed() == ["own.jpg"], said
    assert refused() == {"leave.jpg": "not_allowed"} and not servers[1].seen
    assert f"--allow-host {host(servers[1])}" in next(Path("shards").rglob("bad.jsonl")).read_text()
    code, said = preprocess(table, "more", *SMALL, "--allow-host", host(servers[1]))
    assert code == 0 and packed("more") == ["leave.jpg", "own.jpg"], said


def test_links_that_leave_the_folder_are_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "set" / "link.jpg").symlink_to(tmp_path / "private" / "photo.jpg")
    (tmp_path / "set" / "folder").symlink_to(tmp_path / "private")
    (tmp_path / "set" / "same.jpg").symlink_to("good.jpg")
    code, said = preprocess("set", "shards", *SMALL)
    assert code == 0 and packed() == ["good.jpg", "same.jpg"], said
    assert (
        "left out 2 links that lead out of the folder, such as folder" in said
        and "--allow-path" in said
    )
    code, said = preprocess("set", "more", *SMALL, "--allow-path", "private")
    assert code == 0 and packed("more") == ["good.jpg", "link.jpg", "photo.jpg", "same.jpg"], said


def test_what_is_no_image_is_described_and_never_quoted() -> None:
    Path("set/secret.jpg").write_bytes(b"hunter2:rosebud\n")
    Path("set/page.jpg").write_bytes(b"<html>hunter2")
    code, said = preprocess("set", "shards", *SMALL)
    details = {
        json.loads(line)["detail"]
        for line in next(Path("shards").rglob("bad.jsonl")).read_text().splitlines()
    }
    assert code == 0 and details == {"it is text", "it is HTML"}
    assert (
        "hunter" not in said and "hunter" not in next(Path("shards").rglob("bad.jsonl")).read_text()
    )
