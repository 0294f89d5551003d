"""Files in parts of limited size with their SHA-256, and back: a missing part costs only the files
that lie in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write(files: Sequence[Path], folder: Path, part_bytes: int) -> dict[str, Any]:
    """Cut the files, one after the other, into parts of at most so many bytes; returns the
    manifest's share of them.
    """
    for old in folder.glob("part-*"):
        old.unlink()
    listed, start = [], 0
    for path in files:
        size = path.stat().st_size
        listed.append({"name": path.name, "bytes": size, "sha256": sha256(path), "start": start})
        start += size
    parts: dict[str, Any] = {}
    buffer = bytearray()

    def commit() -> None:
        name = f"part-{len(parts):02}"
        (folder / name).write_bytes(buffer)
        parts[name] = {"bytes": len(buffer), "sha256": hashlib.sha256(buffer).hexdigest()}
        buffer.clear()

    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(min(_CHUNK, part_bytes - len(buffer))):
                buffer += chunk
                if len(buffer) == part_bytes:
                    commit()
    if buffer:
        commit()
    return {"part_bytes": part_bytes, "parts": parts, "files": listed}


def load(folder: Path) -> dict[str, Any]:
    """The manifest; ValueError with a sentence for people where there is none, or none that can be
    read.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{path} is missing: copy the whole folder that `make gpu-kit` made, at least this"
            " file."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): copy it again.") from None
    if not isinstance(manifest, dict) or "parts" not in manifest:
        raise ValueError(f"{path} is not a manifest of `make gpu-kit`: copy it again.")
    return manifest


def arrived(folder: Path, manifest: dict[str, Any]) -> dict[str, str]:
    """Of every part: empty, or one sentence that says what is wrong with it."""
    found = {}
    for name, told in manifest["parts"].items():
        path = folder / name
        if not path.is_file():
            found[name] = (
                f"{name} has not arrived: copy it to {folder} and run the same command again."
            )
        elif path.stat().st_size != told["bytes"] or sha256(path) != told["sha256"]:
            found[name] = f"{name} is damaged (its SHA-256 is not the manifest's): copy it again."
        else:
            found[name] = ""
    return found


def extract(
    folder: Path, manifest: dict[str, Any], faults: dict[str, str], out: Path
) -> tuple[list[Path], dict[str, str]]:
    """(files whose parts are all here, written to `out`; of the others, name -> which part is to
    blame).
    """
    out.mkdir(parents=True, exist_ok=True)
    complete, lost = [], {}
    for told in manifest["files"]:
        name, path = told["name"], out / told["name"]
        blamed = [part for part, _, _ in _pieces(told, manifest) if faults[part]]
        if "/" in name or name.startswith("."):
            lost[name] = "its name is no file name"
        elif (
            path.is_file()
            and path.stat().st_size == told["bytes"]
            and sha256(path) == told["sha256"]
        ):
            complete.append(path)  # from an earlier call, whether its parts are still here or not
        elif blamed:
            lost[name] = faults[blamed[0]]
        else:
            _join(folder, told, manifest, path)
            complete.append(path)
    return complete, lost


def _join(folder: Path, told: dict[str, Any], manifest: dict[str, Any], path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        for part, first, last in _pieces(told, manifest):
            with (folder / part).open("rb") as source:
                source.seek(first)
                left = last - first
                while left and (chunk := source.read(min(_CHUNK, left))):
                    file.write(chunk)
                    left -= len(chunk)
    partial.replace(path)


def _pieces(told: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(part, first byte in it, end) of one file."""
    size, at, end = manifest["part_bytes"], told["start"], told["start"] + told["bytes"]
    while at < end:
        number = at // size
        last = min(end, (number + 1) * size)
        yield f"part-{number:02}", at - number * size, last - number * size
        at = last
