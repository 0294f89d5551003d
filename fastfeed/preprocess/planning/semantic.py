"""Images whose embeddings are similar to that of a preferred one, by the cosine.

Images are visited in the order of preference: one is dropped if it is similar enough to a kept one,
in favor of the most similar of these. NumPy compares each with all that are kept, in blocks, for up
to EXACT images. Of more, an index of faiss finds the most similar one: vectors are sorted into
cells, and those of the cells around an image are compared.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.preprocess.inputs.formats import normalize_names
from fastfeed.preprocess.inputs.inputs import Input, read_columns
from fastfeed.printable import printable

EXACT = 100_000  # images; at 512 numbers each, two cores compare these in a few minutes
_BLOCK = 1024  # images compared with the kept ones at a time
_KEPT_AT_ONCE = 16_384
_CELLS_SEARCHED = 64


def read_vectors(input: Input, name: str) -> np.ndarray:
    """Embeddings of all samples: float32 (length, numbers), of length 1, or 0 for none. ConfigError.

    An embedding that is missing or holds NaN is none.
    """
    names = name, *normalize_names("tar", (name,))
    vectors: np.ndarray | None = None
    for i, columns in read_columns(input, names, "embedding"):
        value = next((columns[column] for column in names if columns[column] is not None), None)
        if value is None:
            continue
        vector = _vector(value, name, input.source.uri(i))
        if vectors is None:
            vectors = np.zeros((len(input.source), len(vector)), np.float32)
        if len(vector) != vectors.shape[1]:
            raise ConfigError(
                f"embedding: {name!r} of {input.source.uri(i)} has {len(vector)} numbers, those"
                f" above have {vectors.shape[1]}",
                field="embedding",
            )
        vectors[i] = vector
    if vectors is None or not vectors.any():
        raise ConfigError(
            f"embedding: no image of {input.text} has a value of {name!r}; pass another column",
            field="embedding",
        )
    return vectors


def _vector(value: Any, name: str, uri: str) -> np.ndarray:
    """The embedding, scaled to length 1; zeros if it has no direction."""
    try:
        vector = np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        vector = np.zeros(0)
    if not len(vector) or isinstance(value, (str, bytes, bool, int, float)):
        raise ConfigError(
            f"embedding: {name!r} of {uri} must be a list of numbers, got"
            f" {printable(repr(value), 60)}",
            field="embedding",
        )
    largest = float(np.abs(vector).max())
    if not 0 < largest < math.inf:  # NaN, too
        return np.zeros(len(vector))
    vector = vector / largest
    return vector / np.linalg.norm(vector)


def similar_to_kept(
    vectors: np.ndarray,
    ids: np.ndarray,
    similarity: float,
    stays: np.ndarray,
    keeps: np.ndarray,
    exact: int = EXACT,
) -> tuple[np.ndarray, np.ndarray]:
    """The kept image in whose favor each is dropped, and their cosine.

    Args:
        vectors: float32 (length, numbers), of length 1.
        ids: int64 (n,), rows of `vectors` in the order of preference.
        similarity: Least cosine of similar images.
        stays: bool (n,), those that are never dropped.
        keeps: bool (n,), those in whose favor others are dropped.
        exact: Number of images up to which NumPy compares all.

    Returns:
        Ids, int64 (n,), -1 for images that stay; cosines, float32 (n,).
    """
    count = len(ids)
    nearest = np.full(count, -1, np.int64)
    cosines = np.zeros(count, np.float32)
    kept = _ExactSearch(vectors) if count <= exact else _cells(vectors, ids)
    for first in range(0, count, _BLOCK):
        rows = ids[first : first + _BLOCK]
        block = vectors[rows]
        is_kept = keeps[first : first + _BLOCK].copy()
        best, at = kept.most_similar(block)
        within = np.tril(block @ block.T, -1)
        for k in np.flatnonzero(np.maximum(best, within.max(axis=1)) >= similarity).tolist():
            among = np.where(is_kept[:k], within[k, :k], -1)
            if k and among.max() > best[k]:
                best[k] = among.max()
                at[k] = rows[among.argmax()]
            if best[k] >= similarity and not stays[first + k]:
                nearest[first + k] = at[k]
                cosines[first + k] = best[k]
                is_kept[k] = False
        kept.add(rows[is_kept])
    return nearest, cosines


class _ExactSearch:
    """Vectors of kept images, all of which are compared."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors
        self._ids = np.zeros(0, np.int64)

    def most_similar(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cosine and id of the most similar kept image of each."""
        best = np.full(len(block), -1, np.float32)
        at = np.full(len(block), -1, np.int64)
        for first in range(0, len(self._ids), _KEPT_AT_ONCE):
            ids = self._ids[first : first + _KEPT_AT_ONCE]
            cosines = block @ self._vectors[ids].T
            nearest = cosines.argmax(axis=1)
            cosine = cosines[np.arange(len(block)), nearest]
            is_better = cosine > best
            best[is_better] = cosine[is_better]
            at[is_better] = ids[nearest[is_better]]
        return best, at

    def add(self, ids: np.ndarray) -> None:
        self._ids = np.concatenate([self._ids, ids])


@dataclass(slots=True)
class _FaissSearch:
    """Vectors of kept images in an index of faiss."""

    vectors: np.ndarray
    index: Any
    ids: np.ndarray

    def most_similar(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cosines, at = self.index.search(block, 1)
        found = np.append(self.ids, -1)[at[:, 0]]
        return np.where(found >= 0, cosines[:, 0], -1).astype(np.float32), found

    def add(self, ids: np.ndarray) -> None:
        self.index.add(self.vectors[ids])
        self.ids = np.concatenate([self.ids, ids])


def _cells(vectors: np.ndarray, ids: np.ndarray) -> _FaissSearch:
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError as error:
        what = f'dedupe "semantic" of {len(ids):,} images, more than {EXACT:,},'
        raise MissingExtra.of(what, "faiss", "faiss") from error
    count = max(1, int(4 * math.sqrt(len(ids))))
    index = faiss.index_factory(vectors.shape[1], f"IVF{count},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[ids[:: max(1, len(ids) // (64 * count))]])
    index.nprobe = _CELLS_SEARCHED
    return _FaissSearch(vectors, index, np.zeros(0, np.int64))
