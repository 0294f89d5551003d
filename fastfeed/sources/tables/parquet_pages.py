"""Memory that pages of a Parquet column need, computed from page headers.

A footer says it as well, but nothing keeps it to the truth, and a dictionary makes a million values
of one. Formats: Apache Parquet's parquet.thrift (PageHeader), Encodings.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastfeed.sources.tables.parquet_footer import STRUCT, Thrift

__all__ = ["Pages", "pages_of"]

_DICTIONARY = (2, 8)  # encodings whose values are numbers of values in a dictionary
_SHARED = 7  # DELTA_BYTE_ARRAY: a value begins as the one before it


@dataclass(slots=True)
class Pages:
    """The pages of some columns, together."""

    unpacked: int = 0  # bytes
    values: int = 0
    repeated: int = 0  # of them, those that may be longer than their share of the page
    longest: int = 0  # bytes of one, at most

    @property
    def least(self) -> int:
        """Bytes that they take in any case."""
        return self.unpacked + 8 * self.values

    @property
    def most(self) -> int:
        """Bytes that they may take."""
        return self.least + self.repeated * self.longest

    def add(self, more: Pages) -> None:
        """Count those of another column as well."""
        self.unpacked += more.unpacked
        self.values += more.values
        self.repeated += more.repeated
        self.longest = max(self.longest, more.longest)


def pages_of(chunk: Any, count: int) -> Pages:
    """Pages of one column chunk (its bytes) with `count` values. ValueError.

    ValueError if it is damaged.

    Pages after these values are not read, so they do not count.
    """
    pages, dictionary, at = Pages(), 0, 0
    while at < len(chunk) and pages.values < count:
        thrift = Thrift(chunk, at)
        unpacked, packed, values, encoding, is_dictionary = _header(thrift)
        at = thrift.at + packed
        if packed < 0 or unpacked < 0 or values < 0:
            raise ValueError(f"a page of {packed} bytes")
        pages.unpacked += unpacked
        if is_dictionary:
            dictionary = max(dictionary, unpacked)
            continue
        pages.values += values
        if encoding in _DICTIONARY or encoding == _SHARED:
            pages.repeated += values
            pages.longest = max(pages.longest, unpacked if encoding == _SHARED else dictionary)
    return pages


def _header(thrift: Thrift) -> tuple[int, int, int, int, bool]:
    """Unpacked and packed bytes, values, encoding, and True for a dictionary page."""
    unpacked = packed = values = 0
    encoding, is_dictionary = -1, False
    try:
        for number, kind in thrift.fields():
            if number == 2:
                unpacked = thrift.integer()
            elif number == 3:
                packed = thrift.integer()
            elif number in (5, 7, 8) and kind == STRUCT:
                is_dictionary = number == 7
                values, encoding = _data_header(thrift, 4 if number == 8 else 2)
            else:
                thrift.skip(kind)
    except IndexError:
        raise ValueError("a page's header is cut off") from None
    return unpacked, packed, values, encoding, is_dictionary


def _data_header(thrift: Thrift, encoding_field: int) -> tuple[int, int]:
    values, encoding = 0, -1
    for number, kind in thrift.fields():
        if number == 1:
            values = thrift.integer()
        elif number == encoding_field:
            encoding = thrift.integer()
        else:
            thrift.skip(kind)
    return values, encoding
