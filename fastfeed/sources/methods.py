"""Methods that all sources of fastfeed share; each is a function of the protocol's own methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.sources.base import Source


class SourceMethods:
    """Base class of sources, without state."""

    def uris(self: Source, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Addresses of samples, such as those of `batch.ids`.

        Args:
            ids (Sequence[int] | np.ndarray): Sample ids, (n,).

        Returns:
            `uri(i)` of each: a path or address, with what finds the sample in it.

        Raises:
            ConfigError: If an id is not an integer in [0, number of samples).

        Example:
            >>> ff.Files(["cat.jpg", "dog.jpg"]).uris([1, 0])
            ['dog.jpg', 'cat.jpg']
        """
        numbers = np.asarray(ids)
        length = len(self)
        if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
            raise ConfigError(
                f"uris: ids must be a list of integers, got {numbers.dtype}{list(numbers.shape)};"
                " pass batch.ids",
                field="ids",
            )
        outside = (numbers < 0) | (numbers >= length)
        if outside.any():
            raise ConfigError(
                f"uris: ids must be in [0, {length}), got {numbers[int(np.argmax(outside))]}; pass"
                " the ids of a batch of this source",
                field="ids",
            )
        return [self.uri(i) for i in numbers.tolist()]
