"""A page of shared memory: a reader sees whole writes only, whichever process writes, and however
that ends.
"""

import os
import signal
import stat
import subprocess
import sys

import pytest

from fastfeed.live import folder as live_folder
from fastfeed.live.folder import folders, is_alive, process_identity, writable_folder
from fastfeed.live.page import COUNTERS, SIZE, PageError, PageWriter, read_page

# every counter and both numbers of each stage are the same, so a torn reading is one where they
# differ
WRITER = """
import sys, os
from fastfeed.live.page import COUNTERS, PageWriter
page = PageWriter(sys.argv[1], {"pid": os.getpid()})
print("ready", flush=True)
k, n = 0, len(COUNTERS)
while True:
    k += 1
    page.set_stages({"read": (k, k), "decode": (k, k)})
    page.write([k] * n)
"""


@pytest.fixture
def writer(tmp_path):
    path = str(tmp_path / "a.live")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield path, process
    process.kill()
    process.wait()
    process.stdout.close()


def read_whole(path, times):
    seen = set()
    for _ in range(times):
        page = read_page(path)
        values = set(page.counters.values()) | {n for pair in page.stages.values() for n in pair}
        assert len(values) == 1, f"torn: {values}"
        seen |= values
    return seen


def test_no_reading_is_torn(writer):
    path, _ = writer
    assert len(read_whole(path, 20_000)) > 10


@pytest.mark.nightly
def test_a_million_readings_and_none_is_torn(writer):
    path, _ = writer
    assert len(read_whole(path, 1_000_000)) > 1000


@pytest.mark.parametrize("name", ["\N{CAMERA}" * 200, "\udcff.jpg", 'a "name"\n'])
def test_names_of_any_characters(tmp_path, name):
    path = str(tmp_path / "a.live")
    writer = PageWriter(path, {"name": name})
    assert read_page(path).identity["name"] == name.replace("\udcff", "?")
    writer.close()


def test_a_stopped_writer_can_be_read(writer):
    path, process = writer
    for _ in range(200):  # wherever in a write it is stopped
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        read_whole(path, 3)
        process.send_signal(signal.SIGCONT)


def test_a_killed_writer_leaves_its_last_write(writer):
    path, process = writer
    process.kill()
    process.wait()
    assert len(read_whole(path, 10)) == 1


def test_values_and_identity_come_back(tmp_path):
    page = PageWriter(str(tmp_path / "a.live"), {"pid": 7, "name": "train ü"})
    page.set_stages({"decode": (3, 9), "a stage with a long name": (1, 2)})
    page.write(range(len(COUNTERS)))
    read = read_page(page.path)
    assert list(read.counters.values()) == list(range(len(COUNTERS)))
    assert read.stages == {"decode": (3, 9), "a stage with a l": (1, 2)}
    assert read.identity == {"pid": 7, "name": "train ü"}
    assert len(read.ready) == 8


def test_only_its_owner_may_read_it_and_closing_removes_it(tmp_path):
    page = PageWriter(str(tmp_path / "a.live"), {})
    assert stat.S_IMODE(os.stat(page.path).st_mode) == 0o600
    with pytest.raises(FileExistsError):
        PageWriter(page.path, {})
    page.close()
    assert not os.path.exists(page.path)
    page.write([0] * len(COUNTERS))  # of a thread that is late: into memory that is not read


def test_a_forked_child_leaves_the_parents_page(tmp_path):
    page = PageWriter(str(tmp_path / "a.live"), {})
    child = os.fork()
    if not child:
        page.close()
        os._exit(page.is_own)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(page.path)
    page.close()


def test_a_link_is_not_followed(tmp_path):
    page = PageWriter(str(tmp_path / "a.live"), {})
    (tmp_path / "b.live").symlink_to(page.path)
    with pytest.raises(OSError):
        read_page(str(tmp_path / "b.live"))
    with pytest.raises(FileExistsError):
        PageWriter(str(tmp_path / "b.live"), {})
    page.close()


@pytest.mark.parametrize(
    ("offset", "change", "message"),
    [
        (0, b"other", "not a live page"),
        (6, b"02", "version '02'"),
        (2060, b"\xff", "does not say whose"),
        (64, b"\xff" * 8 + b"\xff" * 100, "checksum is wrong"),
    ],
)
def test_what_is_not_a_page_is_refused(tmp_path, offset, change, message):
    page = PageWriter(str(tmp_path / "a.live"), {"pid": 1})
    page.write([1] * len(COUNTERS))  # the newest is in slot 0
    with open(page.path, "r+b") as file:
        file.seek(offset)
        file.write(change)
    with pytest.raises(PageError, match=message):
        read_page(page.path)


@pytest.mark.parametrize("size", [0, 100, SIZE - 1])
def test_a_page_that_is_cut_short_is_refused(tmp_path, size):
    path = tmp_path / "a.live"
    path.write_bytes((b"FFLIVE01" + bytes(SIZE))[:size])
    with pytest.raises(PageError, match="not a live page"):
        read_page(str(path))


def test_whose_page_it_is():
    own = process_identity()
    assert is_alive(own)
    assert (
        is_alive(own | {"start": own["start"] - 1}) is False
    )  # another process has had this number since
    assert is_alive(own | {"boot": "of yesterday"}) is False
    assert is_alive(own | {"pid_namespace": 1}) is None
    assert is_alive(own | {"host": "node7", "boot": "its own"}) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_alive(own | {"pid": ended.pid}) is False


def test_a_system_that_does_not_say_which_machine_it_is(monkeypatch):
    monkeypatch.setattr(live_folder, "boot_id", lambda: "")
    own = process_identity()
    assert is_alive(own) is None and is_alive(own | {"host": "node7"}) is None


def test_where_pages_lie():
    assert folders({"FASTFEED_LIVE": "off"}) == []
    assert folders({"FASTFEED_LIVE": "/there"}) == ["/there"]
    assert all(folder.endswith(f"fastfeed-{os.getuid()}") for folder in folders({}))


def test_a_folder_that_another_user_has_put_there_is_not_used(tmp_path, monkeypatch):
    monkeypatch.delenv("FASTFEED_LIVE")
    path = tmp_path / "fastfeed-0"
    assert writable_folder(str(path)) == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        writable_folder(str(path))
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(NotADirectoryError):
        writable_folder(str(link))


def test_a_writer_that_laps_the_reader_is_noticed(tmp_path, monkeypatch):
    """As torn as can be: two writes between any two halves of a copy, for a hundred copies."""
    page, pread = PageWriter(str(tmp_path / "a.live"), {"pid": 1}), os.pread
    page.write([1] * len(COUNTERS))
    copies = []

    def torn(fd, size, offset):
        half = 64 + 8 + 100
        first = pread(fd, half if len(copies) % 2 else 1056 + half, 0)
        if len(copies) < 100:
            for _ in range(2):
                page.write([len(copies) * 2 + 5] * len(COUNTERS))
        copies.append(0)
        return first + pread(fd, size - len(first), len(first))

    monkeypatch.setattr(os, "pread", torn)
    read_whole(page.path, 60)
    assert len(copies) > 100
