"""The wire decoder: one message and many at once say the same, and damage ends neither in a crash
nor in a loop.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.xplanes import field_of, varint
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.profiler.readers.protobuf import (
    FIXED64,
    LEN,
    PAD,
    VARINT,
    DamagedMessage,
    FieldIterator,
    double,
    fields,
    signed,
    split,
    text,
    varints,
    words,
)

numbers = st.integers(-(1 << 63), (1 << 64) - 1)
values = st.one_of(numbers, st.floats(allow_nan=False), st.binary(max_size=40))
messages = st.lists(st.tuples(st.integers(1, 5000), values), max_size=12)


def encoded(message: list[tuple[int, int | float | bytes]]) -> bytes:
    return b"".join(field_of(number, value) for number, value in message)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_varints_of_every_length(given_numbers: list[int]) -> None:
    parts = [varint(number) for number in given_numbers]
    data = b"".join(parts) + bytes(PAD)
    begin = np.cumsum([0, *map(len, parts)])
    found, stop = varints(words(data), begin[:-1])
    assert found.view(np.uint64).tolist() == [number & (1 << 64) - 1 for number in given_numbers]
    assert stop.tolist() == begin[1:].tolist()


@given(messages)
def test_a_message_has_its_fields(message: list[tuple[int, int | float | bytes]]) -> None:
    raw = encoded(message)
    data = raw + bytes(PAD)
    found = list(fields(data, 0, len(raw)))
    assert [one.number for one in found] == [number for number, _ in message]
    for one, (_, value) in zip(found, message, strict=True):
        if isinstance(value, int):
            assert one.wire == VARINT
            assert one.value == value & (1 << 64) - 1
            assert value > 0 or signed(one.value) == value
        elif isinstance(value, float):
            assert one.wire == FIXED64
            assert double(one.value) == value
        else:
            assert one.wire == LEN
            assert data[one.value : one.stop] == value


@given(st.lists(messages, max_size=8))
def test_many_at_once_say_what_one_says(many: list[list[tuple[int, int | float | bytes]]]) -> None:
    raw = [encoded(message) for message in many]
    data = b"".join(raw) + bytes(PAD)
    edges = np.cumsum([0, *map(len, raw)])
    walk = FieldIterator(words(data), edges[:-1], edges[1:])
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in many]
    for columns in walk:
        for row, number, wire, value, stop in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            found[row].append((number, wire, value, stop))
    assert walk.damaged == 0
    for row, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        one = [
            (field.number, field.wire, signed(field.value), field.stop)
            for field in fields(data, begin, end)
        ]
        assert found[row] == one


@given(st.binary(max_size=60))
def test_garbage_ends_both_ways_alike(raw: bytes) -> None:
    data = raw + bytes(PAD)
    alone, damaged = 0, 0
    try:
        for _ in fields(data, 0, len(raw)):
            alone += 1
    except DamagedMessage:
        damaged = 1
    walk = FieldIterator(words(data), np.array([0]), np.array([len(raw)]))
    rounds = sum(len(columns[0]) for columns in walk)
    # a number of eleven bytes or more is damage to one and a small number to the other: never more
    # than the end
    assert rounds >= alone
    assert walk.damaged <= 1
    assert damaged or (rounds == alone and not walk.damaged)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_split_finds_the_repeated_field(parts: list[bytes]) -> None:
    raw = field_of(1, 7) + b"".join(field_of(4, part) for part in parts) + field_of(11, "last")
    data = raw + bytes(PAD)
    others, begin, end, whole = split(data, 0, len(raw), 4)
    assert whole
    assert [data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)] == parts
    assert [(one.number, one.wire) for one in others] == [(1, VARINT), (11, LEN)]
    assert text(data, others[1].value, others[1].stop) == "last"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length of 2^63
        b"\x22\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01abcdefgh",  # of minus five
        b"\x22\x80\x80\x80\x80\x20ab",  # of eight GiB
        b"\x08" + b"\xff" * 12,  # a number without an end
        b"\x0b\x0b\x0b\x0b",  # groups, which would nest
        b"\x00\x00\x00",  # field 0
        b"\x22",
        b"\x09abc",
    ],
)
def test_damage_is_told(raw: bytes) -> None:
    data = raw + bytes(PAD)
    with pytest.raises(DamagedMessage):
        list(fields(data, 0, len(raw)))
    assert not split(data, 0, len(raw), 4)[3]
    if raw[0] != 8:
        walk = FieldIterator(words(data), np.array([0]), np.array([len(raw)]))
        assert sum(len(columns[0]) for columns in walk) == 0
        assert walk.damaged == 1


def test_a_message_of_very_many_fields_is_left_in_time() -> None:
    raw = field_of(1, 1) * 5000
    walk = FieldIterator(words(raw + bytes(PAD)), np.array([0]), np.array([len(raw)]))
    assert sum(1 for _ in walk) < 1000
    assert walk.damaged == 1


def test_what_is_no_text_is_replaced() -> None:
    assert text(b"\xffab" + bytes(PAD), 0, 3) == "\ufffdab"
