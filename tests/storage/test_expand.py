"""Which files are meant by a name, a pattern, a folder, a list: local and remote."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import fsspec
import numpy as np
import pytest
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import counted, labels, taken
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, FastfeedError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import Storage, TarShards
from fastfeed.storage.expand import expand_braces, find_files
from fastfeed.storage.retry import RetryPolicy


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path_factory.mktemp("cache")))


BRACES = {  # as bash has it
    "a": ["a"],
    "{0..2}": ["0", "1", "2"],
    "a{2..0}b": ["a2b", "a1b", "a0b"],
    "{08..11}": ["08", "09", "10", "11"],
    "{8..011}": ["008", "009", "010", "011"],
    "{002..000}": ["002", "001", "000"],
    "{-1..1}": ["-1", "0", "1"],
    "{-01..1}": ["-01", "000", "001"],
    "{7..7}": ["7"],
    "{0..9..4}": ["0", "4", "8"],
    "{9..0..4}": ["9", "5", "1"],
    "{a,b}{0..1}": ["a0", "a1", "b0", "b1"],
    "x{,.old}": ["x", "x.old"],
    "{a,b{1..2},c}": ["a", "b1", "b2", "c"],
    "{a,{b,{c,d}}}e": ["ae", "be", "ce", "de"],
    "{1..2}{3,4}{5..6}": ["135", "136", "145", "146", "235", "236", "245", "246"],
    "a}b": ["a}b"],
}


@pytest.mark.parametrize("pattern", BRACES)
def test_braces(pattern):
    assert expand_braces(pattern) == BRACES[pattern]


@pytest.mark.parametrize(
    ("pattern", "text"),
    {
        "a{b}": "braces must hold a range or a list, like {000..099} or {a,b}, got {b} in 'a{b}'",
        "{}": "got {} in '{}'",
        "{0..9..0}": "got {0..9..0}",
        "{a..c}": "got {a..c}",
        "{0..1": "a brace in '{0..1' is not closed",
        "{a,{b}": "a brace in '{a,{b}' is not closed",
        "{0..99999999999}": (
            "'{0..99999999999}' must expand to at most 1,000,000 files, got more; shorten its"
            " ranges"
        ),
        "{0..9999}{0..9999}": "must expand to at most 1,000,000 files, got more",
    }.items(),
)
def test_braces_that_mean_nothing(pattern, text):
    with pytest.raises(ConfigError) as caught:
        expand_braces(pattern)
    assert text in str(caught.value)


@given(st.text("{}.,-019a", max_size=24))
def test_braces_never_hang(pattern):
    with contextlib.suppress(ConfigError):
        assert all(isinstance(name, str) for name in expand_braces(pattern))


# -- local files


def found(given, **options) -> list[str]:
    return [os.path.basename(uri) for uri, _ in find_files(given, ".tar", Storage(), "TarShards")]


@pytest.fixture
def root(tmp_path) -> Path:
    for name in (
        "b.tar",
        "a.tar",
        "c.TAR",
        "d.tar.gz",
        ".h.tar",
        "s-0.tar",
        "s-1.tar",
        "sub/e.tar",
        "x[1].tar",
        "{2}.tar",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "folder.tar").mkdir()
    return tmp_path


PLACES = {  # relative to the root -> names
    "a.tar": ["a.tar"],
    "c.TAR": ["c.TAR"],
    "d.tar.gz": ["d.tar.gz"],
    "": ["a.tar", "b.tar", "s-0.tar", "s-1.tar", "x[1].tar", "{2}.tar"],
    "s-?.tar": ["s-0.tar", "s-1.tar"],
    "[ab].tar": ["a.tar", "b.tar"],
    "s-{1..0}.tar": ["s-1.tar", "s-0.tar"],
    "{sub/,}*.tar": ["e.tar", "a.tar", "b.tar", "s-0.tar", "s-1.tar", "x[1].tar", "{2}.tar"],
    "sub": ["e.tar"],
    "sub/": ["e.tar"],
    "**/*.tar": ["a.tar", "b.tar", "s-0.tar", "s-1.tar", "e.tar", "x[1].tar", "{2}.tar"],
    "x[1].tar": ["x[1].tar"],
    "{2}.tar": ["{2}.tar"],
}


@pytest.mark.parametrize("place", PLACES)
def test_names_patterns_and_folders(root, place):
    assert found(str(root / place)) == PLACES[place]
    assert found(root / place) == PLACES[place]
    assert found(f"file://{root / place}") == PLACES[place]


def test_lists(root, monkeypatch):
    monkeypatch.chdir(root)
    assert found(["b.tar", Path("a.tar"), "s-*.tar", "sub"]) == [
        "b.tar",
        "a.tar",
        "s-0.tar",
        "s-1.tar",
        "e.tar",
    ]
    assert found(Path().glob("s-?.tar")) in (["s-0.tar", "s-1.tar"], ["s-1.tar", "s-0.tar"])
    stat = find_files("a.tar", ".tar", Storage(), "x")[0][1]
    assert (stat.size, stat.version) == (5, str((root / "a.tar").stat().st_mtime_ns))


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (["none.tar"], "cannot open {root}/none.tar: No such file or directory; check the path"),
        (
            ["a.tar", "none-{0..8}.tar"],
            "cannot open {root}/none-0.tar: No such file or directory (and 8 more of the 10 named)",
        ),
        (["none*.tar"], "nothing matches {root}/none*.tar; check the path"),
        (["none/"], "nothing matches {root}/none/*.tar; check the path"),
        (["folder.tar"], "nothing matches {root}/folder.tar/*.tar; check the path"),
        (["gone.tar"], "cannot open {root}/gone.tar: No such file or directory; check the path"),
        (["g*.tar"], "cannot open {root}/gone.tar: No such file or directory; check the path"),
        (["pipe"], "cannot open {root}/pipe: not a regular file; check the path"),
        (["a\0b.tar"], "cannot open {root}/a\\x00b.tar: embedded null byte; check the path"),
    ],
)
def test_what_is_not_there(root, places, text):
    """A link to nothing is not passed over: it is a shard that is missing."""
    (root / "gone.tar").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    with pytest.raises(SourceError) as caught:
        found([f"{root}/{place}" for place in places])
    assert str(caught.value).startswith("TarShards: " + text.format(root=root))


@pytest.mark.parametrize(
    "places", [["a.tar", "a.tar"], ["a.tar", "./a.tar"], ["*.tar", "sub/../b.tar"], ["{a,a}.tar"]]
)
def test_what_is_given_twice(root, places, monkeypatch):
    monkeypatch.chdir(root)
    with pytest.raises(
        ConfigError, match=r"TarShards: .*.tar is given twice; each file may be named once"
    ):
        found(places)


@pytest.mark.parametrize("given", [None, 5, [], [None], b"a.tar", ["a.tar", 5]])
def test_what_is_no_name(given):
    with pytest.raises(
        ConfigError,
        match=r"TarShards needs a path, a pattern such as 'train-\{000..099\}.tar', or a list",
    ):
        TarShards(given)


# -- remote ones, in fsspec's memory


@pytest.fixture
def bucket(tmp_path) -> str:
    """Shards that are also in tmp_path."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for path in sorted(shard_folder(tmp_path, (2, 3, *(1,) * 16)).glob("*.tar")):
        memory.pipe(f"/bucket/{path.name}", path.read_bytes())
    return "memory://bucket"


def test_remote_shards_are_like_local_ones(bucket, tmp_path, monkeypatch):
    scans = counted(monkeypatch)
    local = TarShards(tmp_path)
    taken(scans)
    named = f"{bucket}/s-{{000..017}}.tar"
    for shards in (
        bucket,
        f"{bucket}/",
        f"{bucket}/*.tar",
        named,
        expand_braces(named),
        [f"{bucket}/s-0[01]?.tar"],
    ):
        source = TarShards(shards)
        assert len(taken(scans)) in (0, 18), "an index is found again under the same addresses"
        assert source.read(range(21)) == local.read(range(21))
        assert [pending.result() for pending in source.fetch([20, 0])] == local.read([20, 0])
        assert (labels(source), source.fingerprint) == (labels(local), local.fingerprint)
        assert (source.bounds.tolist(), source.notes) == (local.bounds.tolist(), [])
        assert source.shard(17).endswith("bucket/s-017.tar")
        assert source.uri(5).endswith("bucket/s-002.tar#512:000005.jpg")
        assert source.remote and not local.remote
    TarShards(named)
    assert taken(scans) == []


def test_few_remote_shards(bucket, tmp_path):
    source = TarShards([f"{bucket}/s-001.tar", str(tmp_path / "s-000.tar")])
    assert source.read(range(5)) == TarShards(
        [tmp_path / "s-001.tar", tmp_path / "s-000.tar"]
    ).read(range(5))


@pytest.mark.parametrize("count", [1, 30])
def test_remote_names_that_are_unusual(bucket, count):
    """More than some are looked up by listing their folder: it must not matter how they end."""
    memory = fsspec.filesystem("memory")
    for i in range(count):
        memory.pipe(f"/odd/part-{i}", tar_of(samples([i])))
    assert len(TarShards([f"memory://odd/part-{i}" for i in range(count)])) == count


def test_a_bucket_that_cannot_be_listed(bucket, monkeypatch):
    """Public ones often cannot: then each address is asked for."""

    def find(self, place):
        raise SourceError(f"cannot list {place}: permission denied")

    monkeypatch.setattr(Storage, "find", find)
    assert len(TarShards(f"{bucket}/s-{{000..017}}.tar")) == 21
    with pytest.raises(SourceError, match="permission denied"):
        TarShards(f"{bucket}/*.tar")


def test_remote_shards_that_are_missing(bucket):
    for names, text, more in (
        (
            f"{bucket}/none.tar",
            "TarShards: cannot open memory://bucket/none.tar: ",
            "; check the path",
        ),
        (
            f"{bucket}/s-{{000..029}}.tar",
            "TarShards: cannot open memory://bucket/s-018.tar: ",
            "(and 11 more of the 30 named)",
        ),
        (
            f"{bucket}/none*.tar",
            "TarShards: nothing matches memory://bucket/none*.tar",
            "; check the path",
        ),
        (
            "memory://nowhere",
            "TarShards: nothing matches memory://nowhere/*.tar",
            "; check the path",
        ),
    ):
        with pytest.raises(SourceError) as caught:
            TarShards(names)
        assert str(caught.value).startswith(text) and more in str(caught.value)


def test_a_remote_shard_that_is_cut_off(bucket):
    memory = fsspec.filesystem("memory")
    whole = tar_of(samples(range(3)))
    memory.pipe("/torn/a.tar", whole[:4000])
    source = TarShards("memory://torn/a.tar")
    good, bad = source.read([0, 1])
    assert good == samples([0])[0][1]
    assert (bad.reason, bad.uri, bad.offset) == ("truncated", source.uri(1), 3584)
    assert "memory://torn/a.tar: cut off at 4000: 000001.jpg should end at" in source.notes[0]


def test_a_remote_shard_that_is_replaced(bucket):
    """Its headers tell: also if sizes are the same and only the order is another."""
    memory = fsspec.filesystem("memory")
    alike = {i: [(f"{i}.jpg", b"%d" % i * 600), (f"{i}.cls", b"%d" % i)] for i in range(4)}
    memory.pipe("/new/a.tar", tar_of([*alike[0], *alike[1], *alike[2]]))
    source = TarShards("memory://new/a.tar", storage=Storage(policy=RetryPolicy(deadline_s=0.5)))
    memory.pipe("/new/a.tar", tar_of([*alike[0], *alike[2], *alike[1]]))
    good, *bad = source.read(range(3))
    assert good == b"0" * 600
    assert [failure.reason for failure in bad] == ["changed"] * 2
    assert bad[0].detail.startswith("the shard has changed since it was indexed; delete /")
    memory.pipe("/new/a.tar", b"short")
    assert all(isinstance(blob, Failure) for blob in source.read(range(3)))
    memory.rm("/new/a.tar")
    assert [blob.reason for blob in source.read(range(3))] == ["not_found"] * 3
    memory.pipe("/new/a.tar", tar_of([*alike[3], *alike[1]]))
    again = TarShards("memory://new/a.tar")
    assert (labels(again), again.read([0])) == ([3, 1], [b"3" * 600])


def test_all_errors_are_of_the_family(bucket):
    for shards in ("nosuchprotocol://a/b.tar", "memory://bucket/{a}.tar"):
        with pytest.raises(FastfeedError):
            TarShards(shards)
    assert np.array_equal(TarShards(bucket).label(np.array([3])), [0])
