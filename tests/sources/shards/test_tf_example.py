"""tf.train.Example on the wire: against protobuf's own parser, and against malformed messages."""

from __future__ import annotations

import pytest
from helpers.records import entry, example, feature, field, varint
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sources.tfrecord.example import Example, FeatureNames
from fastfeed.sources.tfrecord.protobuf import LazyMessage, Malformed

IMAGE, LABEL = b"image/encoded", b"image/class/label"
VALUES = st.one_of(
    st.binary(max_size=300),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.binary(max_size=4), max_size=3),
    st.lists(st.integers(-3, 300), max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
)
NAMES = st.sampled_from(["image/encoded", "image/class/label", "image/format", "", "x" * 200])
UNKNOWN = [
    varint(9 << 3) + varint(300),
    varint(9 << 3 | 1) + bytes(8),
    varint(9 << 3 | 5) + bytes(4),
    field(9, b"no"),
]


def image(data: bytes, name: bytes = IMAGE) -> bytes:
    """The image's bytes, of an Example that is all at hand."""
    first, last = Example(LazyMessage.of(data), 0, len(data), FeatureNames(name)).image(name)
    return data[first:last]


def label(data: bytes, name: bytes = LABEL) -> int | str:
    return Example(LazyMessage.of(data), 0, len(data), FeatureNames(IMAGE, name)).label(name)


@st.composite
def messages(draw) -> bytes:
    """Examples in any form that protobuf allows: parts that are put together, fields unknown,
    values before keys.

    No unknown fields in entries of the map: implementations differ in what is then left of the
    entry.
    """
    features = []
    for name in draw(st.lists(NAMES, max_size=6)):
        value = [
            field(2, feature(draw(VALUES), draw(st.booleans())))
            for _ in range(draw(st.integers(0, 2)))
        ]
        features.append(
            field(1, b"".join(draw(st.permutations([field(1, name.encode()), *value]))))
        )
    features += draw(st.lists(st.sampled_from(UNKNOWN), max_size=2))
    cut = draw(st.integers(0, len(features)))
    halves = [field(1, b"".join(features[:cut])), field(1, b"".join(features[cut:]))]
    return b"".join([*halves, *draw(st.lists(st.sampled_from(UNKNOWN), max_size=1))])


def told(data: bytes, name: bytes, view: LazyMessage) -> object:
    """A feature's one value, or that it has none."""
    found = Example(view, 0, len(data), FeatureNames(name, b"another"))
    try:
        first, last = found.image(name)
    except Malformed:
        try:
            return found.label(name)
        except Malformed:
            return None
    return data[first:last]


def expected(data: bytes, name: bytes) -> object:
    """The same, by TensorFlow; it reads no other file's messages as Examples."""
    features = (
        pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'")
        .train.Example.FromString(data)
        .features.feature
    )
    kind = features[name.decode()].WhichOneof("kind") if name.decode() in features else None
    values = (
        list(getattr(features[name.decode()], kind).value)
        if kind in ("bytes_list", "int64_list")
        else []
    )
    return (
        values[0]
        if len(values) == 1 and not (kind == "int64_list" and not 0 <= values[0] < 2**31)
        else None
    )


@given(messages(), st.sampled_from([IMAGE, LABEL, b"x" * 200]))
def test_reads_what_protobuf_reads(data, name):
    assert told(data, name, LazyMessage.of(data)) == expected(data, name)


@given(messages(), st.sampled_from([IMAGE, LABEL]), st.integers(20, 60))
def test_reads_the_same_in_pieces(data, name, most):
    pieces = LazyMessage(
        lambda start, count: data[start : start + max(count if count < 2048 else 0, most)],
        len(data),
    )
    assert told(data, name, pieces) == told(data, name, LazyMessage.of(data))


@given(messages(), st.data())
def test_never_raises_anything_else_and_reads_nothing_else(data, draw):
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        if damaged:
            damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(damaged)[: draw.draw(st.integers(0, len(damaged)))]
    try:
        found = told(data, IMAGE, LazyMessage.of(data))
    except Malformed:
        return
    assert found is None or isinstance(found, (int, str)) or found in data


@given(st.binary(max_size=200))
def test_noise_is_refused_or_harmless(data):
    try:
        assert told(data, IMAGE, LazyMessage.of(data)) is None
    except Malformed as error:
        assert str(error)


def test_the_image_is_found_among_features_in_any_order():
    values = {
        "image/height": 3,
        "image/encoded": b"\xff\xd8" * 500,
        "image/format": b"JPEG",
        "image/bbox": [0.5],
    }
    for first in values:
        assert image(example({first: values[first]} | values)) == b"\xff\xd8" * 500
    assert image(example({"x" * 300: b"long name"}), b"x" * 300) == b"long name"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**31 - 1])
def test_numbers(number, packed):
    assert label(example({"image/encoded": b"", "image/class/label": number}, packed)) == number


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"tench, Tinca tinca", "tench, Tinca tinca"),
        (b"7", 7),
        (b"007", "007"),
        (b"3000000000", "3000000000"),
        ("Ä".encode(), "Ä"),
        (b"1.5", "1.5"),
        (b" x", " x"),
    ],
)
def test_texts(value, found):
    assert label(example({"image/class/label": value})) == found


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1, "got -1, must be a number from 0 to 2**31 - 1 or a string"),
        (2**31, "got 2147483648, must be"),
        (b"-1", "got b'-1', must be"),
        (b"", "got b'', must be"),
        (b"\xff\xfe", r"got b'\xff\xfe', must be"),
        (b"a\0b", r"got b'a\x00b', must be"),
        (b"x" * 1001, "got b'xxxxxxxxxxxxxxxxxxxx', must be"),
        ([1, 2], "holds more than one value"),
        ([b"a", b"b"], "holds more than one value"),
        ([], "holds no value"),
        ([0.5], "holds floating-point numbers"),
    ],
)
def test_what_is_no_label(value, why):
    with pytest.raises(Malformed) as caught:
        label(example({"image/class/label": value}))
    assert str(caught.value).startswith(f"image/class/label: {why}")


def test_a_missing_feature_is_told_with_those_that_are_there():
    with pytest.raises(Malformed, match=r"^no image/encoded, only a/b, c$"):
        image(example({"c": 1, "a/b": b"2"}))
    with pytest.raises(Malformed, match=r"^no image/encoded, only nothing$"):
        image(b"")
    with pytest.raises(Malformed, match=r"^image/encoded: holds an integer, not bytes$"):
        image(example({"image/encoded": 5}))


def wrapped(value: bytes) -> bytes:
    """An Example whose image is this message."""
    return field(1, field(1, field(1, IMAGE) + field(2, value)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (field(1, b"\x0a\x05ab"), "the field at 2 goes beyond its message"),
        (b"\x0a\xff", "it ends too early"),
        (b"\x0a" + b"\xff" * 12, "a number of more than ten bytes"),
        (b"\x0a" + varint(2**60) + bytes(50), "the field at 0 goes beyond its message"),
        (b"\x0b", "wire type 3 at 0"),
        (b"\x0e", "wire type 6 at 0"),
        (b"\x02\x00", "field number 0 at 0"),
        (b"\x09" + bytes(7), "the field at 0 goes beyond its message"),
        (
            field(1, field(1, field(1, IMAGE) + field(2, b"") * 17)),
            "a value comes in more than 16 parts",
        ),
        (
            wrapped(field(1, field(1, b"abc")[:-1])),
            "image/encoded: the field at 23 goes beyond its message",
        ),
        (
            wrapped(field(3, field(1, b"\x80"))) + b"\x08\x00",
            "image/encoded: a number goes beyond its list",
        ),
    ],
)
def test_malformed_messages(data, why):
    with pytest.raises(Malformed) as caught:
        image(data)
    assert str(caught.value) == why


def test_an_entry_of_another_form_is_read_as_protobuf_does():
    twice = field(1, entry("image/encoded", b"old") + entry("image/encoded", b"new"))
    assert image(twice) == b"new"
    later = field(1, field(1, field(2, feature(b"x")) + field(1, IMAGE)))
    assert image(later) == b"x"
    both = wrapped(feature(5) + feature(b"x"))
    assert image(both) == b"x"
