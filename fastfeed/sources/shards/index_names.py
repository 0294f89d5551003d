"""Shards that an index from another tool names: by the rules that hold for tables."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.sources.access import Access, Allow, Refusal, advice
from fastfeed.sources.guarded_storage import guarded
from fastfeed.storage.storage import Storage, is_local

__all__ = ["IndexNames", "shard_paths"]


def shard_paths(shards: Any) -> list[Any]:
    """The items of an argument `shards`; errors in them are raised where they are opened."""
    if isinstance(shards, (str, bytes, os.PathLike)) or not isinstance(shards, Iterable):
        return [shards]
    return list(shards)


class IndexNames:
    """Names in indexes: files below the index's folder, and what `allow` permits."""

    def __init__(
        self,
        shards: Sequence[Any],
        indexes: Sequence[str],
        allow: Allow,
        storage: Storage,
        who: str,
    ) -> None:
        self.storage = storage  # to read with; guarded once an index names a web address
        self._who = who
        self._is_guarded = False
        own = [
            os.fspath(item).removeprefix("file://")
            for item in shards
            if isinstance(item, (str, os.PathLike))
        ]
        self._access = Access.of([*own, *indexes], [_folder(uri) for uri in indexes], *allow)

    def resolve(self, index: str, base: str, name: Any) -> str:
        """The address of a file that `index` names.

        ValueError if it is no name, SourceError if it is not allowed.

        Args:
            index: The index, for errors.
            base: What `name` may be relative to: the index, or a folder that was resolved before.
            name: As the index has it.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a file is needed, got {name!r}")
        address = name[7:] if name[:7].lower() == "file://" else name
        is_relative = "://" not in address
        if is_relative:
            address = _joined(base, address)
        if any(c in address for c in "*[{") and not (
            is_local(address) and os.path.lexists(address)
        ):
            raise ValueError(f"{name!r} is a pattern, and an index names files")
        refusal = self._refusal(base, address, is_relative)
        if refusal is not None:
            raise SourceError(
                f"{self._who}: {index} may not name {name!r}: {refusal.why}. If you trust it,"
                f" {advice([refusal])}"
            )
        if not self._is_guarded and address.lower().startswith(("http://", "https://")):
            self.storage = guarded(self.storage, self._access)
            self._is_guarded = True
        return address

    def _refusal(self, base: str, address: str, is_relative: bool) -> Refusal | None:
        if is_relative and not is_local(address):
            outside = self._access.refusal(address, "relative")
            if outside is None or self._access.refusal(base, "relative") is None:
                return outside
        return self._access.refusal(address)


def _folder(uri: str) -> str:
    return uri[: uri.rfind("/") + 1] or "."


def _joined(base: str, name: str) -> str:
    """Resolve a name against the folder of `base`; addresses are normalized, without `..`."""
    if is_local(base):
        return os.path.join(os.path.dirname(base), name)
    scheme, _, rest = base.partition("://")
    host, _, path = rest.partition("/")
    path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), name))
    return f"{scheme}://{host}/{path.lstrip('/')}"
