"""What a user names as a source, to be opened when it is needed, and again to see whether it has
changed.

The list of a folder's photographs is kept with the job, where the target is a local folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from fastfeed.preprocess.inputs.inputs import (
    Input,
    InputLike,
    listing_prefix,
    open_input,
    resolve_input,
)
from fastfeed.preprocess.model.plan import PLAN
from fastfeed.sources.base import Source
from fastfeed.sources.detect import kind_of
from fastfeed.sources.listing.listing_file import ARRAYS
from fastfeed.sources.shards.labels import LabelKind
from fastfeed.storage.storage import Storage

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

__all__ = ["InputRequest", "keep_listing", "open_now", "request_of"]


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The arguments of `open_input`, which see.

    Called with a target, it opens the source as the job there sees it.
    """

    place: str
    label: str | None = None
    image: str | None = None
    caption: str | None = None
    columns: tuple[str, ...] = ()
    labels_file: str | None = None
    missing: str = "error"
    allow_path: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    allow_scheme: tuple[str, ...] = ()
    storage: dict[str, Any] | Storage | None = None
    label_kind: LabelKind | None = None

    def document(self) -> dict[str, Any]:
        """The arguments that were given, as JSON values, without the place and what may hold
        secrets.
        """
        given = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name not in ("place", "storage")
        }
        defaults = {item.name: item.default for item in fields(self)}
        return {
            name: list(value) if isinstance(value, (tuple, list)) else value
            for name, value in given.items()
            if value != defaults[name]
        }

    def __call__(self, target: Target | None) -> Input:
        """With the listing that the job in `target` keeps, if there is one."""
        return (
            self.open(None)
            if target is None
            else self.as_planned(target).open(listing_prefix(target))
        )

    def as_planned(self, target: Target) -> InputRequest:
        """With integer labels as the job in `target` has them, unless it is said what they are:
        jobs of earlier versions, which have no classes then, keep them as indices.
        """
        folder = self.labels_file is None and kind_of(self.place) == "folder"
        plan = None if self.label_kind or folder else target.read(PLAN)
        try:
            classes = None if plan is None else json.loads(plan)["classes"]
        except (ValueError, KeyError, TypeError):  # damaged: loading the plan says so
            classes = None
        return self if classes is None else replace(self, label_kind="name" if classes else "index")

    def open(self, keep: str | None, fresh: bool | None = None) -> Input:
        """`keep` and `fresh` as in `open_input`."""
        return open_input(
            self.place,
            label=self.label,
            image=self.image,
            caption=self.caption,
            columns=self.columns,
            labels_file=self.labels_file,
            missing=self.missing,
            label_kind=self.label_kind,
            allow_path=self.allow_path,
            allow_host=self.allow_host,
            allow_scheme=self.allow_scheme,
            storage=self.storage,
            keep=keep,
            fresh=fresh,
        )


Opened = Source | Input | Callable[["Target"], Input]


def request_of(source: InputLike, storage: dict[str, Any] | None) -> Opened:
    """A path as a request; other sources as they are."""
    return (
        InputRequest(os.fspath(source), storage=storage)
        if isinstance(source, (str, os.PathLike))
        else source
    )


@contextmanager
def open_now(source: Opened, target: Target) -> Iterator[tuple[Input, str | None]]:
    """The source as it is now, whatever listing the job keeps, and the prefix of its listing:
    removed at the end.
    """
    if not isinstance(source, InputRequest):
        yield resolve_input(source, target), None
        return
    prefix = listing_prefix(target, f"check-{os.getpid()}")
    try:
        yield source.as_planned(target).open(prefix, fresh=True), prefix
    finally:
        for path in glob(escape(prefix) + "*") if prefix is not None else ():
            with suppress(OSError):
                os.unlink(path)


def keep_listing(prefix: str | None, target: Target, name: str) -> None:
    """Make the listing with this prefix that of the plan called `name`."""
    keep = listing_prefix(target, name)
    if prefix is not None and keep is not None and os.path.exists(prefix + "listing" + ARRAYS):
        os.replace(prefix + "listing" + ARRAYS, keep + "listing" + ARRAYS)
