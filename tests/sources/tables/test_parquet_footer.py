"""Where the columns of a Parquet file lie, against what PyArrow says."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sources.tables.parquet_footer import row_groups

COLUMNS = {
    "id": pa.array(range(50)),
    "image": pa.array([{"bytes": bytes([i]) * i, "path": f"{i}.jpg"} for i in range(50)]),
    "box": pa.array([[1.0, 2.0, i] for i in range(50)]),
    "näme.x": pa.array([f"n{i % 3}" for i in range(50)]),
    "good": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(50)]),
    "none": pa.nulls(50),
}


def written(names: list[str], **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({name: COLUMNS[name] for name in names}).replace_schema_metadata(
        {"about": "x" * 500}
    )
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def footer(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True),
    st.integers(1, 60),
    st.sampled_from(["none", "snappy", "zstd"]),
    st.booleans(),
    st.sampled_from(["1.0", "2.6"]),
)
def test_as_pyarrow_says(names, per_group, compression, dictionary, version):
    data = written(
        names,
        row_group_size=per_group,
        compression=compression,
        use_dictionary=dictionary,
        version=version,
    )
    about, found = pq.read_metadata(pa.BufferReader(data)), row_groups(footer(data), len(data))
    assert [group.rows for group in found] == [
        about.row_group(k).num_rows for k in range(about.num_row_groups)
    ]
    for k, group in enumerate(found):
        for i, chunk in enumerate(group.chunks):
            column = about.row_group(k).column(i)
            assert (chunk.path, chunk.size, chunk.unpacked, chunk.data, chunk.dictionary) == (
                column.path_in_schema,
                column.total_compressed_size,
                column.total_uncompressed_size,
                column.data_page_offset,
                column.dictionary_page_offset or 0,
            )


def test_spans_of_columns_and_their_fields():
    data = written(["id", "image", "box"], use_dictionary=False)
    (group,) = row_groups(footer(data), len(data))
    id_, blob, path, box = group.chunks
    assert group.span("id") == (id_.start, id_.stop, id_.unpacked)
    assert group.span("image.bytes") == (blob.start, blob.stop, blob.unpacked)
    assert group.span("image") == (blob.start, path.stop, blob.unpacked + path.unpacked)
    assert group.span("box") == (box.start, box.stop, box.unpacked)
    assert (4, id_.stop) == (id_.start, blob.start)
    with pytest.raises(ValueError, match="a row group without column 'i'"):
        group.span("i")


def test_a_footer_that_is_cut_off():
    data = written(["id", "box"], row_group_size=20)
    whole, size = footer(data)[:-8], len(data)
    assert len(row_groups(whole, size)) == 3
    for length in range(len(whole)):
        with pytest.raises(ValueError):
            row_groups(whole[:length], size)
    with pytest.raises(ValueError, match=r"column 'id' in bytes 4 to \d+ of a file of 50"):
        row_groups(whole, 50)


@given(st.data())
def test_a_damaged_footer_is_an_error_or_another_footer(data):
    whole = bytearray(footer(written(["id", "image"], row_group_size=20)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = row_groups(bytes(whole), 10_000)
    except ValueError:
        return
    assert all(
        0 <= chunk.start <= chunk.stop <= 10_000 for group in found for chunk in group.chunks
    )


@given(st.binary(max_size=200))
def test_whatever_it_holds_it_ends(data):
    try:
        assert len(row_groups(data, 1000)) <= len(data)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    "data", [b"\x19\x1c" * 10_000, b"\x1c" * 10_000, b"\x19" * 10_000, b"\x15" + b"\xff" * 10_000]
)
def test_values_inside_values_without_end(data):
    with pytest.raises(ValueError, match="in its footer"):
        row_groups(data, 1000)
