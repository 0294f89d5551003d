"""A stand-in for nsys that does what nsys 2022.4 and 2023.4 were seen to do; `install(folder)` puts
it there.

The command runs in a session of its own. SIGINT and SIGTERM go to it once, and nsys ends without
waiting for it. After --duration it kills the command, unless --kill=none. Its importer is not
found, so the raw recording is what it leaves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

REPORT = b"NVIDIA Tegra Profiler Report 2022@4@2@1.\n" + bytes(200)
STREAM = b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1!\n" + bytes(200)
OPTIONS = "trace sample cpuctxsw force-overwrite wait kill stats delay duration output".split()  # noqa: SIM905


def install(folder: Path, **settings: object) -> Path:
    """Make the program, and its importer where the real one has it.

    Settings are those of `main`.
    """
    bin = folder / "bin"
    (folder / "host-linux-x64").mkdir(parents=True)
    bin.mkdir()
    for path, what in (
        (bin / "nsys", "nsys"),
        (folder / "host-linux-x64" / "QdstrmImporter", "importer"),
    ):
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
        code += "; from helpers.profiler import fake_nsys"
        path.write_text(f"#!{sys.executable} -S\n{code}\nfake_nsys.{what}(**{settings!r})\n")
        path.chmod(0o755)
    return bin / "nsys"


def nsys(
    options: list[str] | None = None,  # that this version knows
    streams: bool = True,  # hands descriptors of its caller on
    starts: bool = True,  # the command at all
    hangs: bool = False,  # before it starts the command
    stays: bool = False,  # after the command has ended
    full: bool = False,  # its scratch disk
    records: bool = True,
    # seconds that a process of it lives on after its end, with all it has inherited
    lingers: float = 0,
    torn: bool = False,  # what it records
    export: str = "",  # an SQLite file, of any report
) -> None:
    words = sys.argv[1:]
    if words == ["--version"]:
        print("NVIDIA Nsight Systems version 2022.4.2.1-df9881f")
    elif words == ["profile", "--help"]:
        print("\n".join(f"\t--{name}=\n\t   Says what." for name in options or OPTIONS))
    elif words[0] == "export":
        if "--help" not in words:
            shutil.copyfile(
                export, next(w.partition("=")[2] for w in words if w.startswith("--output="))
            )
    elif words[0] == "profile":
        if hangs:
            time.sleep(60)
        if lingers and os.fork() == 0:
            time.sleep(lingers)
            os._exit(0)
        made = b"" if stays else STREAM * records + b"torn" * torn
        code = _profile(words[1:], options or OPTIONS, streams, starts, full, made)
        until = time.monotonic() + 60 * stays
        while time.monotonic() < until:  # it looks around from time to time
            time.sleep(0.05)
            sum(range(300_000))
        sys.exit(code)


def importer(**_: object) -> None:
    words = argparse.ArgumentParser()
    words.add_argument("-i")
    words.add_argument("-o")
    given = words.parse_args()
    if b"torn" in Path(given.i).read_bytes():
        print("File is corrupted.")
        sys.exit(2)
    Path(given.o).write_bytes(REPORT)


def _profile(
    words: list[str], options: list[str], streams: bool, starts: bool, full: bool, made: bytes
) -> int:
    given: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        if name not in options:
            print(
                f"unrecognised option '--{name}'\n\nusage: nsys profile [<args>]", file=sys.stderr
            )
            return 1
        given[name] = value
    if not starts:
        print("Agent launcher failed.", file=sys.stderr)
        return 1
    if full:
        os.environ["FASTFEED_PID"] = "/dev/full"
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if not streams:
            os.closerange(3, 64)
        os.execvp(words[0], words)
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: asked.append(got))
    duration = float(given.get("duration", 0)) / 10  # tests wait for tenths of seconds
    code: int | None = None
    while code is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
        elif asked:
            os.kill(pid, asked[0])
            code = 0
        elif duration and time.monotonic() - begun > duration:
            code = 0 if given.get("kill") == "none" else -signal.SIGTERM
            if code:
                os.killpg(pid, signal.SIGTERM)
        else:
            time.sleep(0.01)
    print(
        "Importer error status: The importer binary and its dependencies were not found.",
        file=sys.stderr,
    )
    if made and time.monotonic() - begun >= float(given.get("delay", 0)):
        Path(given["output"].replace("%%", "%") + ".qdstrm").write_bytes(made)
    return code if code >= 0 else 128 - code
