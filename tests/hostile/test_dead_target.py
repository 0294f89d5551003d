"""Commands that look at a job whose bucket does not answer: they say so within seconds, and end."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading

import pytest
from conftest import environment

pytestmark = pytest.mark.slow


def look(command: str, port: int) -> subprocess.CompletedProcess[str]:
    arguments = [
        "preprocess",
        command,
        "s3://bucket/shards",
        "--target-option",
        f"endpoint_url=http://127.0.0.1:{port}",
    ]
    arguments += ["--target-option", "key=a", "--target-option", "secret=bbbbbbbb"]
    command_line = [sys.executable, "-c", "from fastfeed.cli import main; main()", *arguments]
    return subprocess.run(
        command_line, capture_output=True, text=True, env=environment(), timeout=110, check=False
    )


@pytest.mark.parametrize("command", ["status", "verify"])
def test_no_server_listens_there(command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = look(command, port)
    assert done.returncode not in (0, 120) and "Traceback" not in done.stderr
    assert re.search("s3://bucket has not answered for [34] s, trying again", done.stderr), (
        done.stderr
    )
    assert "s3://bucket/shards" in done.stderr


def test_a_server_that_takes_connections_and_never_answers():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        held: list[socket.socket] = []
        threading.Thread(target=lambda: take(server, held), daemon=True).start()
        done = look("status", server.getsockname()[1])
    assert done.returncode not in (0, 120) and "Traceback" not in done.stderr
    assert "has not answered for 3 s" in done.stderr, done.stderr


def take(server: socket.socket, held: list[socket.socket]) -> None:
    while True:
        try:
            held.append(server.accept()[0])
        except OSError:
            return
