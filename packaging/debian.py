"""Unpack Debian packages of any architecture, with dependencies, as any user."""

from __future__ import annotations

import base64
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

KEYS = ("/usr/share/keyrings", "/etc/apt/trusted.gpg.d")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")


def unpack(suite: str, architecture: str, names: Sequence[str], root: Path) -> None:
    """Into `root`, which a program may be started from by an emulator (`qemu-aarch64 -L root`)."""
    packages = _index(suite, architecture)
    missing = [name for name in names if name not in packages]
    if missing:
        raise SystemExit(
            f"Debian {suite} has no {', '.join(missing)} for {architecture}; change the list of"
            " packages."
        )
    root.mkdir(parents=True, exist_ok=True)
    for name in _with_dependencies(names, packages):
        about = packages[name]
        blob = _get(f"{MIRROR}/{about['Filename']}")
        if hashlib.sha256(blob).hexdigest() != about["SHA256"]:
            raise SystemExit(
                f"{about['Filename']} is not what Debian's index lists; try again, or another"
                " DEBIAN_MIRROR."
            )
        with tempfile.NamedTemporaryFile(suffix=".deb") as file:
            file.write(blob)
            file.flush()
            subprocess.run(["dpkg-deb", "--extract", file.name, str(root)], check=True)
    for link in ("lib", "bin"):
        if not (root / link).exists():
            (root / link).symlink_to(f"usr/{link}")


def _index(suite: str, architecture: str) -> dict[str, dict[str, str]]:
    """The packages that Debian has signed, by name."""
    name = f"main/binary-{architecture}/Packages.xz"
    release = _signed(_get(f"{MIRROR}/dists/{suite}/InRelease"))
    if not re.search(rf"^(?:Suite|Codename): {re.escape(suite)}$", release, re.MULTILINE):
        raise SystemExit(
            f"{MIRROR} gives the index of another suite than {suite}; try another DEBIAN_MIRROR."
        )
    listed = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(name)}$", release, re.MULTILINE)
    packed = _get(f"{MIRROR}/dists/{suite}/{name}")
    if listed is None or hashlib.sha256(packed).hexdigest() != listed[1]:
        raise SystemExit(
            f"{name} of {suite} is not what Debian signed; try again, or another DEBIAN_MIRROR."
        )
    text = lzma.decompress(packed).decode()
    stanzas = [
        dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE)) for stanza in text.split("\n\n")
    ]
    return {stanza["Package"]: stanza for stanza in stanzas if "Package" in stanza}


def _signed(release: bytes) -> str:
    """The content of an InRelease file, whose signature is one of Debian's keys on this machine."""
    keys = sorted(
        path for folder in KEYS for path in Path(folder).glob("debian-archive-*") if path.is_file()
    )
    if not keys:
        raise SystemExit(
            f"No keys of Debian in {' or '.join(KEYS)} (Debian, Ubuntu: debian-archive-keyring)."
        )
    with tempfile.TemporaryDirectory() as folder:
        signed, content = Path(folder, "InRelease"), Path(folder, "Release")
        signed.write_bytes(release)
        rings = []
        for number, key in enumerate(keys):
            ring = Path(folder, f"{number}.gpg")
            ring.write_bytes(_binary(key.read_bytes()))
            rings += ["--keyring", str(ring)]
        command = ["gpgv", "--quiet", *rings, "--output", str(content), str(signed)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode or not content.exists():
            raise SystemExit(
                f"The index of {MIRROR} is not signed by Debian: {done.stderr.strip()}; try another"
                " DEBIAN_MIRROR."
            )
        return content.read_text()


def _binary(key: bytes) -> bytes:
    """A key without its ASCII armor (RFC 9580, 6.2), as gpgv takes it."""
    if not key.startswith(b"-----BEGIN"):
        return key
    body = key.replace(b"\r", b"").partition(b"\n\n")[2].partition(b"\n-----END")[0]
    return base64.b64decode(
        b"".join(line for line in body.split(b"\n") if not line.startswith(b"="))
    )


def _with_dependencies(names: Sequence[str], packages: dict[str, dict[str, str]]) -> list[str]:
    """The first of alternatives; what is no package by that name is virtual, and left out."""
    found, todo = set[str](), list(names)
    while todo:
        name = todo.pop()
        if name in packages and name not in found:
            found.add(name)
            fields = (packages[name].get(field, "") for field in ("Depends", "Pre-Depends"))
            wanted = [
                part.split("|")[0].split("(")[0].split(":")[0].strip()
                for part in ",".join(fields).split(",")
            ]
            todo += filter(None, wanted)
    return sorted(found)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read()
