"""Finding and driving nsys, with a program in its place that does what nsys does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.profiler.nsys_databases import Export

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.readers.nsys import report as nsys_report
from fastfeed.profiler.runner import nsight

REPORT = b"NVIDIA Tegra Profiler Report 2025@5@1@121-255136380782v0.\n\x0bLocal (CLI)" + bytes(200)
OLDEST = b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)" + bytes(200)
STREAM = b"U3w[END]NVIDIA Nsight Systems Stream 2022.4.2.1-df9881f!\n" + bytes(200)

# like nsys 2023.4: exports what is old enough, and cannot import by itself
NSYS = """#!{python}
import os, pathlib, shutil, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    print(pathlib.Path(sys.argv[0]).name, *words, "TMPDIR=" + os.environ.get("TMPDIR", ""), file=log)
if words == ["--version"]:
    print("NVIDIA Nsight Systems version {version}-234433681190v0")
elif words == ["export", "--help"]:
    print("usage: nsys export [<args>] [nsys-rep-file]{help}")
else:
    report = pathlib.Path(words[-1])
    if b"2025@5" in report.read_bytes():
        print("Exporting [=====50%      ]", end="\\r")
        sys.exit("Report was created in Nsight Systems version (2025.5.1.121), newer than your current version")
    if b"unknown" in report.read_bytes():
        print("Exporting [=====50%      ]", end="\\r")
        print({dump!r}, file=sys.stderr)
        sys.exit("Exportation error: ProtobufUtils.cpp(73): Throw in function void QuadDProtobufUtils::ReadMessage()")
    if b"mute" in report.read_bytes():
        sys.exit(3)
    out = next(word.partition("=")[2] for word in words if word.startswith("--output="))
    shutil.copyfile({export!r}, out)
"""
DUMP = (  # nsys 2022.4 of a report of 2023.2, whose first line does not name its version
    "[libprotobuf ERROR src/google/protobuf/message_lite.cc:122] Can't parse message of type"
    ' "QuadDAnalysis.Data.SessionState" because it is missing required fields:'
    " DeviceState.Props.Items[79].Type"
)
IMPORTER = """#!{python}
import sys
source, made = sys.argv[2], sys.argv[4]
content = open(source, "rb").read()
open(source, "ab").write(b"imported")  # as the real one does
if b"broken" in content:
    sys.exit("Importer error status: failed to read the file")
open(made, "wb").write({report!r})
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def export(tmp_path) -> Path:
    made = Export(tmp_path / "export.sqlite")
    made.kernel(1_000, 2_000)
    return made.done()


@pytest.fixture
def place(tmp_path, export, monkeypatch) -> Path:
    """A folder as the package of Debian has it, which NSYS points to."""
    folder = tmp_path / "usr" / "lib" / "nsight-systems"
    install(folder / "target-linux-x64" / "nsys", tmp_path, export)
    (folder / "bin").mkdir()
    (folder / "bin" / "nsys").symlink_to(folder / "target-linux-x64" / "nsys")
    program(
        folder / "host-linux-x64" / "QdstrmImporter",
        IMPORTER.format(python=sys.executable, report=OLDEST),
    )
    monkeypatch.setenv("NSYS", str(folder / "bin"))
    return folder


def install(
    path: Path, tmp_path: Path, export: Path, version: str = "2023.4.4.54", more: str = ""
) -> Path:
    values = {"python": sys.executable, "log": str(tmp_path / "log"), "export": str(export)}
    return program(path, NSYS.format(version=version, help=more, dump=DUMP, **values))


def test_found_by_the_environment(place, monkeypatch):
    assert nsight.find() == place / "bin" / "nsys"
    monkeypatch.setenv("NSYS", str(place / "bin" / "nsys"))
    assert nsight.find() == place / "bin" / "nsys"
    monkeypatch.setenv("NSYS", str(place / "host-linux-x64"))
    with pytest.raises(
        TraceError, match="NSYS must name the nsys program or the folder that holds it, got"
    ):
        nsight.find()


def test_found_on_path_and_then_the_newest_of_its_places(tmp_path, export, monkeypatch):
    monkeypatch.delenv("NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(nsight, "ROOT", tmp_path)
    assert nsight.find() is None
    debian = install(tmp_path / "usr/lib/nsight-systems/bin/nsys", tmp_path, export)
    assert nsight.find() == debian
    for version in ("2023.4.4", "2024.10.1", "2024.9.2"):
        install(tmp_path / "opt/nvidia/nsight-systems" / version / "bin" / "nsys", tmp_path, export)
    assert nsight.find() == tmp_path / "opt/nvidia/nsight-systems/2024.10.1/bin/nsys"
    on_path = install(tmp_path / "bin/nsys", tmp_path, export)
    assert nsight.find() == on_path


def test_version(place, tmp_path):
    assert nsight.version(place / "bin" / "nsys") == "2023.4.4.54"
    assert nsight.version(program(tmp_path / "mute", "#!/bin/sh\n")) == ""
    assert nsight.version(tmp_path / "nowhere") == ""


def test_importer_next_to_the_program_or_behind_its_links(place, tmp_path):
    importer = place / "host-linux-x64" / "QdstrmImporter"
    assert nsight.importer(place / "bin" / "nsys") == importer
    link = tmp_path / "usr" / "bin" / "nsys"
    link.parent.mkdir()
    link.symlink_to(place / "bin" / "nsys")
    assert nsight.importer(link) == importer
    importer.unlink()
    assert nsight.importer(link) is None


def test_a_report_is_read_through_its_export(place, tmp_path):
    report = tmp_path / "run.qdrep"
    report.write_bytes(OLDEST)
    trace = readers.read(report)
    assert trace.origin.path == str(report) and len(trace.ops.start) == 1
    asked = (tmp_path / "log").read_text().splitlines()[-1]
    assert "export --type=sqlite --force-overwrite=true" in asked and "--include-blobs" not in asked
    scratch = asked.partition("TMPDIR=")[2]
    assert scratch in asked.partition("TMPDIR=")[0] and not Path(scratch).exists()
    assert report.read_bytes() == OLDEST


def test_payloads_are_asked_for_where_nsys_can(place, tmp_path, export):
    install(place / "target-linux-x64" / "nsys", tmp_path, export, more=" --include-blobs=")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(OLDEST)
    readers.read(report)
    assert "--include-blobs=true" in (tmp_path / "log").read_text().splitlines()[-1]


def test_a_raw_recording_is_imported_from_a_copy(place, tmp_path):
    stream = tmp_path / "run.qdstrm"
    stream.write_bytes(STREAM)
    assert readers.detect(stream) == "nsys_report"
    assert len(readers.read(stream).ops.start) == 1
    assert stream.read_bytes() == STREAM
    made = nsight.imported(stream, tmp_path)  # in its own folder nothing is copied
    assert made == tmp_path / "run.nsys-rep" and made.read_bytes() == OLDEST


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as error:
        nsys_report.read(path)
    assert str(path) in str(error.value) or path.name in str(error.value)
    return str(error.value)


def test_a_newer_report_has_the_sentence_of_nsys(place, tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(REPORT)
    text = refused(report)
    assert (
        "was written by Nsight Systems 2025.5.1, and" in text and "is the older 2023.4.4.54" in text
    )
    assert (
        "Report was created in Nsight Systems version (2025.5.1.121), newer than your current"
        " version" in text
    )
    assert "install Nsight Systems 2025.5.1 or later" in text and "50%" not in text


def test_what_nsys_cannot_read(place, tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(OLDEST + b"mute")
    assert "cannot read" in refused(
        report
    ) and "it ended with code 3 and without a word" in refused(report)
    stream = tmp_path / "run.qdstrm"
    stream.write_bytes(STREAM + b"broken")
    assert "Importer error status: failed to read the file" in refused(stream)
    (place / "host-linux-x64" / "QdstrmImporter").unlink()
    assert "comes without its QdstrmImporter" in refused(stream)


def test_a_newer_report_that_does_not_name_its_version(place, tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(OLDEST + b"unknown")
    text = refused(report)
    assert (
        "version 2023.4.4.54, as it does not know all that the report holds: a newer Nsight Systems"
        " wrote it" in text
    )
    assert "protobuf" not in text.lower() and "QuadD" not in text
    assert text.endswith("nsys export --type sqlite run.nsys-rep")


def test_without_nsys_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nsight, "ROOT", tmp_path)
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(REPORT)
    text = refused(report)
    assert "is a report of Nsight Systems 2025.5.1, which only its own nsys can open" in text
    assert (
        "apt-get install nsight-systems" in text
        and "nsys export --type sqlite run.nsys-rep" in text
    )


def test_an_export_without_work_is_spoken_of_as_the_report(place, tmp_path, export):
    empty = Export(tmp_path / "empty.sqlite")
    empty.nvtx(1, 2, "step")
    export.write_bytes(empty.done().read_bytes())
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(OLDEST)
    assert refused(report).startswith(f"{report} has no CUDA activity")


def test_told_by_content(tmp_path):
    path = tmp_path / "anything"
    assert all(nsys_report.knows(path, head) for head in (REPORT, OLDEST, STREAM))
    assert not any(
        nsys_report.knows(path, head) for head in (b"", b"SQLite format 3\0", b"{}", b"U3w[END]")
    )
    assert nsys_report.knows(tmp_path / "run.qdstrm", b"U3w[END]NVIDIA another name")
