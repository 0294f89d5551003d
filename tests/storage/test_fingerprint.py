"""What a fingerprint notices, what it does not depend on, and what is said of a change."""

from __future__ import annotations

import re
import shutil
import tarfile

import pytest
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import opened

from fastfeed.sources import TarShards
from fastfeed.storage.fingerprint import difference, fingerprint

COUNT = 40
FILES = samples(range(COUNT))


def another(index: int, data: bytes) -> list[tuple[str, bytes]]:
    """The members, one of which holds something else."""
    return [*FILES[:index], (FILES[index][0], data), *FILES[index + 1 :]]


def uri(i: int) -> str:
    return f"sample {i}"


NAMES, LABELS = "names of samples", "labels or classes"
CONTENT = "content of samples in {0}..{1} (sample {0} to sample {1})"

CHANGES = {  # members, of which each sample has two -> what has changed, what is the same
    "a name": ([("x.jpg", FILES[0][1]), ("x.cls", FILES[1][1]), *FILES[2:]], [NAMES], [LABELS]),
    "a label": (another(11, b"0"), [LABELS], [NAMES]),
    "a label is missing": (another(11, b""), [LABELS], [NAMES]),
    "an image": (another(10, b"x"), [CONTENT.format(5, 6)], [NAMES, LABELS]),
    "a large image": (another(10, b"x" * 99999), [CONTENT.format(5, 6)], [NAMES, LABELS]),
    "the last image": (another(78, b"x"), [CONTENT.format(37, 39)], [NAMES, LABELS]),
    "the first label and the last image": (
        [FILES[0], ("000000.cls", b"2"), *another(78, b"x")[2:]],
        [LABELS, CONTENT.format(37, 39)],
        [NAMES],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_has_changed(tmp_path, what):
    """And where. That what follows lies at other places is no change of it."""
    files, changed, same = CHANGES[what]
    before = opened(tmp_path / "a.tar", tar_of(FILES)).fingerprint
    now = opened(tmp_path / "b.tar", tar_of(files)).fingerprint
    assert (
        difference(before, now, COUNT, uri)
        == f"changed: {', '.join(changed)}; the same: {', '.join(same)}"
    )


def test_the_same_in_a_tar_of_another_format(tmp_path):
    before = opened(tmp_path / "a.tar", tar_of(FILES)).fingerprint
    now = opened(
        tmp_path / "b.tar",
        tar_of([(f"./{name}", data) for name, data in FILES], tarfile.PAX_FORMAT),
    ).fingerprint
    assert now == before
    assert difference(before, now, COUNT, uri) == "nothing changed"


def test_classes_count_as_labels(tmp_path):
    before = opened(tmp_path / "a.tar", tar_of(FILES), classes=("a", "b", "c"))
    for classes in (("a", "b", "d"), ("a", "c", "b"), ("a", "b", "c", "d"), ("ab", "c", "")):
        now = TarShards(tmp_path / "a.tar", classes=classes)
        text = "changed: labels or classes; the same: names of samples"
        assert difference(before.fingerprint, now.fingerprint, COUNT, uri) == text


def test_where_shards_lie_and_when_they_were_written_does_not_matter(tmp_path):
    one = TarShards(shard_folder(tmp_path / "one", (3, 4)))
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copyfile)
    two = TarShards(tmp_path / "two")
    assert one.uri(0) != two.uri(0)
    assert one.fingerprint == two.fingerprint


def test_the_order_of_shards_matters(tmp_path):
    shard_folder(tmp_path, (3, 4))
    names = [tmp_path / "s-000.tar", tmp_path / "s-001.tar"]
    assert TarShards(names).fingerprint != TarShards(names[::-1]).fingerprint


def test_no_name_runs_into_the_next(tmp_path):
    """As `ab` and `c` would be `a` and `bc`."""
    prints = set()
    for names in (("ab.jpg", "c.jpg"), ("a.jpg", "bc.jpg")):
        source = opened(tmp_path / names[0], tar_of([(name, b"x") for name in names]), label=None)
        prints.add(source.fingerprint.partition(" labels ")[0])
    assert len(prints) == 2


def test_it_is_short_text():
    text = fingerprint(
        3, [b"a"], [b"b"], lambda first, last: [b"%d" % i for i in range(first, last)]
    )
    assert re.fullmatch(r"names [0-9a-f]{16} labels [0-9a-f]{16} content [0-9a-f]{64}", text)


def test_few_samples():
    """Fewer than there are slices."""
    prints = [
        fingerprint(
            3,
            [],
            [],
            lambda first, last, odd=odd: [b"x" if i == odd else b"y" for i in range(first, last)],
        )
        for odd in (None, 0, 1, 2)
    ]
    assert [difference(prints[0], now, 3, uri).partition(";")[0] for now in prints[1:]] == [
        f"changed: content of samples in {i}..{i} (sample {i} to sample {i})" for i in range(3)
    ]


@pytest.mark.parametrize(
    "other", ["", "ImageFolder 5f", "names a labels b", "names a labels b content c", "a b c d e f"]
)
def test_a_fingerprint_of_another_kind(other):
    own = fingerprint(3, [b"a"], [b"b"], lambda first, last: [])
    assert (
        difference(other, own, 3, uri)
        == difference(own, other, 3, uri)
        == "the data is of another kind"
    )


def test_of_a_mixture_names_the_source_that_changed():
    one = fingerprint(4, [b"n"], [b"l"], lambda a, b: [b"c"])
    other = fingerprint(4, [b"n"], [b"l"], lambda a, b: [b"x"])
    assert difference(f"{one} + {one}", f"{one} + {other}", 8, str) == "changed: source 1 of 0..1"
    assert difference(f"{one} + {one}", f"{one} + {one}", 8, str) == "nothing changed"
