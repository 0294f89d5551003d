"""Pickles made by someone else: `Arrays.cifar` reads arrays from them, and nothing that they name
is ever reached.
"""

from __future__ import annotations

import contextlib
import pickle
import pickletools
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastfeed.errors import SourceError
from fastfeed.sources import Arrays
from fastfeed.sources.mnist_cifar import byte_array, read_pickle

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 3072), np.uint8)
LABELS = [3, 1, 2]


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def string(value: bytes) -> bytes:
    """As Python 2 writes a str."""
    return b"T" + struct.pack("<i", len(value)) + value


DTYPE = name("numpy", "dtype") + string(b"u1") + number(0) + number(1) + b"\x87R"
RECONSTRUCT = (
    name("numpy.core.multiarray", "_reconstruct")
    + name("numpy", "ndarray")
    + number(0)
    + b"\x85"
    + string(b"b")
) + b"\x87R"


def python2_batch(pixels: np.ndarray = PIXELS, labels: list[int] = LABELS) -> bytes:
    """A batch as Python 2 and NumPy 1 wrote those that are published."""
    dtype = (
        DTYPE
        + b"("
        + number(3)
        + string(b"|")
        + b"NNN"
        + number(-1)
        + number(-1)
        + number(0)
        + b"tb"
    )
    shape = number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
    array = (
        RECONSTRUCT + b"(" + number(1) + shape + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    )
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = string(b"filenames") + b"](" + string("caf\xe9.png".encode("latin-1")) + b"e"
    return b"\x80\x02}q\x01(" + string(b"data") + array + string(b"labels") + listed + names + b"u."


def changed_dtype() -> bytes:
    """An array of a dtype that is changed afterwards, so that its bytes are taken for the address
    of an object.
    """
    put, get = b"r\0\0\0\0", b"j\0\0\0\0"
    content = (
        b"\x80\x04}"
        + string(b"x")
        + name("numpy", "dtype")
        + string(b"V8")
        + b"\x89\x88\x87R"
        + put
        + b"0"
    )
    content += (
        RECONSTRUCT
        + b"("
        + number(1)
        + number(1)
        + b"\x85"
        + get
        + b"\x89"
        + string(b"AAAAAAAA")
        + b"tb0"
    )
    field = (
        b"}"
        + string(b"a")
        + name("numpy", "dtype")
        + string(b"O")
        + b"\x89\x88\x87R"
        + number(0)
        + b"\x86s"
    )
    content += get + b"(" + number(3) + string(b"|") + b"N" + string(b"a") + b"\x85" + field
    return content + number(8) + number(1) + number(0x1B) + b"tb0" + b"s."


def folder_of(folder: Path, content: bytes) -> Path:
    for batch in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (folder / batch).write_bytes(content)
    return folder


def test_a_batch_as_it_was_published(tmp_path: Path) -> None:
    source = Arrays.cifar(folder_of(tmp_path, python2_batch()), "test")
    expected = PIXELS.reshape(3, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(np.stack(source.read(range(3))), expected)
    assert source.label(np.arange(3)).tolist() == LABELS


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", "CF")
def test_arrays_of_any_protocol_and_order(protocol: int, order: str) -> None:
    pixels = np.asarray(PIXELS, order=order)  # type: ignore[call-overload]
    array = byte_array(read_pickle(pickle.dumps({b"data": pixels}, protocol))["data"])
    np.testing.assert_array_equal(array, PIXELS)


def test_a_dtype_that_is_changed_after_its_array(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"data_batch_1: "):
        Arrays.cifar(folder_of(tmp_path, changed_dtype()))


def test_no_numpy_type_is_reached() -> None:
    value = read_pickle(b"\x80\x02" + DTYPE + b".")
    assert type(value).__module__.startswith("fastfeed.") and byte_array(value) is None


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}"
        + b")"
        + b"\x85" * 100_000
        + b"Ns.",  # a nested key: hashing it overflows the stack
        b"\x80\x02"
        + b")"
        + b"2\x86" * 100
        + b"N}j\0\0\0\0s.",  # each tuple holds the one before twice
        b"\x80\x02}r\xff\xff\xff\xff.",  # number of a memo: a list as long takes 64 GB
        b"\x80\x02B\xff\xff\xff\x7fx.",  # bytes that are not there
        b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fx.",
        b"\x80\x02" + b"]" * 60_000 + b"a" * 59_999 + b".",
        b"\x80\x02" + DTYPE + b"NbNb.",
        b"\x80\x02" + DTYPE + b"}b" + DTYPE + b"b.",
        b"\x80\x02" + name("builtins", "eval") + b".",
        b"\x80\x02" + DTYPE + b")R.",
        b"\x80\x02" + name("numpy", "ndarray") + b")\x81.",
        b"\x80\x02" + string(b"numpy") + string(b"dtype") + b")R.",
        b"\x82\x01.",
        b"Pperson\n.",
        b"inumpy\ndtype\n.",
        b"\x80\x05\x97.",
    ],
    ids=lambda content: repr(content[:12]),
)
def test_what_only_attacks_hold(tmp_path: Path, content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=r"^CIFAR: .*data_batch_1"):
            Arrays.cifar(folder_of(tmp_path, content))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize(
    "labels", [[-1, 0, 1], [0, 1, 1 << 63], [0, 1, True], [0, 1, "2"]], ids=repr
)
def test_labels_out_of_any_range(tmp_path: Path, labels: list) -> None:
    with pytest.raises(SourceError, match="is not a CIFAR batch"):
        Arrays.cifar(folder_of(tmp_path, pickle.dumps({b"data": PIXELS, b"labels": labels})))


@pytest.mark.parametrize("shape", [(3, -3072), (1 << 62, 4), (3, 3071), (3 * 3072,), ()], ids=repr)
def test_shapes_that_do_not_fit_their_bytes(shape: tuple[int, ...]) -> None:
    dtype = DTYPE
    sizes = b"(" + b"".join(b"I%d\n" % n for n in shape) + b"t"
    array = (
        RECONSTRUCT + b"(" + number(1) + sizes + dtype + b"\x89" + string(PIXELS.tobytes()) + b"tb"
    )
    made = byte_array(read_pickle(b"\x80\x02" + array + b"."))
    assert made is None or made.shape == shape == (3 * 3072,)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """The same with some bytes changed, dropped, doubled, or replaced by an opcode."""
    parts = bytearray(content)
    codes = b"".join(opcode.code.encode("latin-1") for opcode in pickletools.opcodes)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(parts)))
        kind = int(rng.integers(4))
        if kind == 0:
            parts[at] = int(rng.integers(256))
        elif kind == 1:
            parts[at] = codes[int(rng.integers(len(codes)))]
        elif kind == 2:
            del parts[at : at + int(rng.integers(1, 9))]
        else:
            parts[at:at] = parts[at : at + int(rng.integers(1, 30))]
        if not parts:
            break
    return bytes(parts)


def fuzzed(seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    small = PIXELS[:, :4]
    seeds = [python2_batch(small), changed_dtype()]
    seeds += [pickle.dumps({b"data": small, b"labels": LABELS}, protocol) for protocol in range(6)]
    for _ in range(rounds):
        content = mutated(seeds[int(rng.integers(len(seeds)))], rng)
        with contextlib.suppress(ValueError):
            value = read_pickle(content)
            array = byte_array(value.get("data")) if isinstance(value, dict) else None
            assert array is None or int(array.sum()) >= 0


def test_bent_pickles_are_values_or_errors() -> None:
    fuzzed(0, 3000)


@pytest.mark.slow
def test_many_bent_pickles_are_values_or_errors(fresh_seed: int) -> None:
    fuzzed(fresh_seed, 50_000)
