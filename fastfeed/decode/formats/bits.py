"""Reads bits of coded pictures' headers."""

from __future__ import annotations


class Bits:
    """Bits of some bytes, the highest first; EOFError behind the last.

    `at`: how many have been read.
    """

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._size = 8 * len(data)
        self.at = 0

    def read(self, count: int) -> int:
        """The next bits as a number."""
        self.at += count
        if self.at > self._size:
            raise EOFError
        return self._value >> (self._size - self.at) & ((1 << count) - 1)

    def read_exp_golomb(self) -> int:
        """Read a number of variable length (ue(v) of HEVC, uvlc() of AV1).

        It begins with as many zeros as bits follow the first one.
        """
        zeros = 0
        while not self.read(1):
            zeros += 1
        return (1 << zeros) - 1 + self.read(zeros) if zeros < 32 else (1 << 32) - 1
