"""A table of addresses, some of a host that takes no connection: it costs the patience once, not
once per row.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.photos import jpeg
from helpers.sites import Site, served

pytestmark = pytest.mark.slow


def test_one_patience_for_a_host(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    with served(Site({f"/{i}.jpg": jpeg(i) for i in range(20)})) as site:
        rows = [f"{site.url}/{i}.jpg" for i in range(20)] + [f"{dead}/{i}.jpg" for i in range(20)]
        table = tmp_path / "photos.csv"
        table.write_text("url\n" + "".join(f"{row}\n" for row in rows))
        command = [
            "preprocess",
            str(table),
            str(tmp_path / "out"),
            "--image",
            "url",
            "--size",
            "16",
            "--patience",
            "4",
        ]
        command += ["--allow-host", "127.0.0.1", "--allow-scheme", "http", "--workers", "2"]
        done = subprocess.run(
            [sys.executable, "-c", "from fastfeed.cli import main; main()", *command],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=100,
            check=False,
        )
    assert "Traceback" not in done.stderr, done.stderr
    told = re.findall(rf"{dead} has not answered for \d+ s, trying again; last error", done.stderr)
    assert len(told) == 1, "by one of the workers\n" + done.stderr
    bad = [json.loads(line) for line in (tmp_path / "out/__job/bad.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in bad] == ["io_error"] * 20
    attempts = [int(re.search(r"attempt (\d+)", row["detail"])[1]) for row in bad]
    assert min(attempts) == 1, "rows after the patience are tried once"
