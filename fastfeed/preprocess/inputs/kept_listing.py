"""The listing of a folder that a job keeps, so that later runs see the same images."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape, glob
from typing import TYPE_CHECKING

from fastfeed.preprocess.model.layout import JOB
from fastfeed.preprocess.model.plan import PLAN, plan_files
from fastfeed.preprocess.targets.lock import has_ended, temporary_name
from fastfeed.sources.listing.listing_file import ARRAYS

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

_CHECK = "check"  # in names of listings that are compared with the job's


def listing_prefix(target: Target, name: str | None = None) -> str | None:
    """Prefix of a folder's listing files in a local target; None for remote targets.

    `name` distinguishes listings. None: that of the plan in the target. A merged job keeps none.
    """
    folder = getattr(target, "folder", None)
    if folder is None:
        return None
    if name is None:
        head = target.read(PLAN) or b""
        with suppress(ValueError, AttributeError):  # damaged: `load` says so
            if json.loads(head).get("merged"):
                return None
        files = plan_files(head)
        name = files[0].rpartition("/")[2].removeprefix("order").removesuffix("npy").strip("-.")
    return os.path.join(folder, JOB, f"{name}-" if name else "")


@contextmanager
def temporary_listing(target: Target) -> Iterator[str | None]:
    """Prefix of a listing that is removed at the end, as are those that killed processes left."""
    prefix = listing_prefix(target, f"{_CHECK}-{temporary_name()}")
    try:
        yield prefix
    finally:
        every = listing_prefix(target, _CHECK)
        for path in glob(escape(every) + "*") if every is not None else ():
            owner = os.path.basename(path).removeprefix(f"{_CHECK}-").rpartition("-listing")[0]
            if path.startswith(prefix or path) or has_ended(owner):
                with suppress(OSError):
                    os.unlink(path)


def keep_listing(prefix: str | None, target: Target, name: str) -> None:
    """Make the listing with this prefix that of the plan called `name`."""
    keep = listing_prefix(target, name)
    if prefix is not None and keep is not None and os.path.exists(prefix + "listing" + ARRAYS):
        os.replace(prefix + "listing" + ARRAYS, keep + "listing" + ARRAYS)
