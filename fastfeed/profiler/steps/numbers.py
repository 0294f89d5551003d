"""Numbers in the labels of steps, which show whether marks are missing between them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

__all__ = ["missing_after"]

_NUMBER = re.compile(r"\d+")
_MIN_LABELS = 3
_LARGEST = 1 << 60


def missing_after(labels: Sequence[str]) -> np.ndarray:
    """Steps that the numbers skip after each label: int64, (n,); 0 if they do not count up.

    Of several numbers in a label the last that changes counts: "epoch 1 batch 7/500".
    """
    missing = np.zeros(len(labels), np.int64)
    texts = [_NUMBER.findall(label) for label in labels]
    if len(labels) < _MIN_LABELS or len({len(text) for text in texts}) > 1:
        return missing
    columns = [
        [int(number[:30]) % _LARGEST for number in column] for column in zip(*texts, strict=True)
    ]
    distances = [np.diff(np.array(column, np.int64)) for column in reversed(columns)]
    apart = next((each for each in distances if each.any()), np.zeros(1, np.int64))
    if (apart > 0).all():
        missing[:-1] = apart // np.gcd.reduce(apart) - 1
    return missing
