"""Unpacks Debian packages of any architecture into a folder, with all that they depend on, as any user."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

__all__ = ["unpack"]

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")


def unpack(suite: str, architecture: str, names: Sequence[str], root: Path) -> None:
    """Into `root`, which a program may be started from by an emulator (`qemu-aarch64 -L root`)."""
    packages = _index(suite, architecture)
    missing = [name for name in names if name not in packages]
    if missing:
        raise SystemExit(f"Debian {suite} has no {', '.join(missing)} for {architecture}; change the list of packages.")
    root.mkdir(parents=True, exist_ok=True)
    for name in _with_dependencies(names, packages):
        about = packages[name]
        blob = _get(f"{MIRROR}/{about['Filename']}")
        if hashlib.sha256(blob).hexdigest() != about["SHA256"]:
            raise SystemExit(
                f"{about['Filename']} is not what Debian's index lists; try again, or another DEBIAN_MIRROR."
            )
        with tempfile.NamedTemporaryFile(suffix=".deb") as file:
            file.write(blob)
            file.flush()
            subprocess.run(["dpkg-deb", "--extract", file.name, str(root)], check=True)
    for link in ("lib", "bin"):
        if not (root / link).exists():
            (root / link).symlink_to(f"usr/{link}")


def _index(suite: str, architecture: str) -> dict[str, dict[str, str]]:
    text = lzma.decompress(_get(f"{MIRROR}/dists/{suite}/main/binary-{architecture}/Packages.xz")).decode()
    stanzas = [dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE)) for stanza in text.split("\n\n")]
    return {stanza["Package"]: stanza for stanza in stanzas if "Package" in stanza}


def _with_dependencies(names: Sequence[str], packages: dict[str, dict[str, str]]) -> list[str]:
    """The first of alternatives; what is no package by that name is virtual, and left out."""
    found, todo = set[str](), list(names)
    while todo:
        name = todo.pop()
        if name in packages and name not in found:
            found.add(name)
            fields = (packages[name].get(field, "") for field in ("Depends", "Pre-Depends"))
            wanted = [part.split("|")[0].split("(")[0].split(":")[0].strip() for part in ",".join(fields).split(",")]
            todo += filter(None, wanted)
    return sorted(found)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read()
