"""A Ray cluster of three nodes on this machine, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@dataclass
class Nodes:
    process: subprocess.Popen[str]
    address: str = ""
    workers: list[int] = field(default_factory=list)  # raylets that may be killed

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def kill(self, node: int) -> None:
        assert self.ask(f"kill {node}") == "killed\n"
        self.workers.remove(node)

    def restore(self) -> None:
        """Three nodes again."""
        while len(self.workers) < 2:
            self.workers.append(int(self.ask("add")))


@contextmanager
def ray_nodes() -> Iterator[Nodes]:
    """The head and two more nodes, until the end of the block."""
    # not in pytest's folder: paths of sockets must be short
    folder = tempfile.mkdtemp(prefix="ff", dir="/tmp")
    command = [sys.executable, str(TESTS / "helpers/preprocess/ray_cluster.py"), folder]
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        assert process.stdin is not None and process.stdout is not None
        address, *workers = process.stdout.readline().split() or [""]
        if not address:
            log.seek(0)
            pytest.fail(f"no cluster: {log.read().decode()}")
        yield Nodes(process, address, [int(node) for node in workers])
        process.stdin.close()
        process.wait(60)
    assert not os.path.exists(folder)
