"""Checks of `fit`, `evaluate` and `predict` for what Keras would silently do wrong with a feed."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession
from fastfeed.printable import warn

_IGNORED = {
    "class_weight": "use feed.to_keras(class_weight={...})",
    "sample_weight": "put weights into the source, as in ff.Table(weight=...)",
    "y": "labels come from the feed's source",
    "batch_size": "batches are those of Feed(batch=...); for arrays to validate on, pass"
    " validation_batch_size",
}
_BACKUPS = ("BackupAndRestore", "FeedBackup")
_MAX_FRAMES = 16  # searched for Keras's `fit`
_warned: weakref.WeakSet[FeedSession] = weakref.WeakSet()  # that samples are left out


def refuse_ignored(session: FeedSession, caller: Mapping[str, Any]) -> None:
    """Refuse arguments of `fit` that Keras ignores for an adapter."""
    validates = _fit_locals() and fitted_feed() is not session
    for name, instead in _IGNORED.items():
        if validates and name == "batch_size":
            continue  # that of arrays that are trained on
        if caller.get(name) is not None and "steps_per_execution" in caller:
            raise ConfigError(
                f"{name} must not be given to fit or evaluate together with a feed: Keras would"
                f" ignore it; {instead}",
                field=name,
            )


def refuse_same_feed(session: FeedSession) -> None:
    """Refuse to validate on the feed that is trained on: that would end its epoch."""
    validation = _fit_locals().get("validation_data")
    if _find_feed(_fit_locals().get("x")) is session and _find_feed(validation) is session:
        raise ConfigError(
            "x and validation_data must be two feeds, got the same feed for both; create another"
            " Feed, of the validation data, with shuffle=False and no random ops",
            field="validation_data",
        )


def check_fitted(session: FeedSession) -> None:
    """Refuse a `fit` of another feed, whose position would not be saved."""
    fitted = fitted_feed()
    if fitted is not None and fitted is not session:
        raise ConfigError(
            f"this keras.backup saves the position of {session!r}, but fit is given {fitted!r}; use"
            " that of the feed that is fitted: ff.keras.backup(feed, folder)"
        )


def refuse_second_backup() -> None:
    """Refuse two callbacks of the running `fit` that restore weights and the epoch."""
    callbacks = getattr(_fit_locals().get("callbacks"), "callbacks", [])
    names = [type(each).__name__ for each in callbacks if type(each).__name__ in _BACKUPS]
    if len(names) > 1:
        raise ConfigError(
            "keras.backup must be the only callback that restores training, got"
            f" {', '.join(names)}: the epoch of one would move the feed of the other; leave one out",
            field="callbacks",
        )


def ends_by_steps(session: FeedSession, caller: Mapping[str, Any]) -> bool:
    """True if `fit` ends epochs of this feed by `steps_per_epoch`, and its data continues.

    `caller`: local variables of Keras's iterator, which may have another limit than `fit`.
    """
    iterator = caller.get("self")
    steps = caller.get("steps_per_epoch") or getattr(iterator, "steps_per_epoch", None)
    return bool(steps) and fitted_feed() is session and not session.is_proving


def is_endless() -> bool:
    """True if the data of the running `fit` continues after the feed's epoch: it ends by steps."""
    return bool(getattr(_fit_locals().get("x"), "_is_endless", False))


def follow_fit(session: FeedSession) -> None:
    """Move a feed to the epoch at which `fit` begins, if it is behind and not moved by hand.

    `fit(initial_epoch=3)` would train on the order and the augmentation of epoch 0 again.
    """
    fit = _fit_locals()
    begins = fit.get("initial_epoch")  # inside its loop: also an epoch that a callback restored
    if (
        not isinstance(begins, int)
        or begins != fit.get("epoch", begins)
        or _find_feed(fit.get("x")) is not session
    ):
        return
    steps = fit.get("steps_per_epoch") or len(session)
    if is_endless():
        session.advance(*divmod(begins * steps, len(session)))
        return
    # Keras ends one of its epochs where the feed's ends
    epoch, part = divmod(begins, -(-len(session) // steps))
    session.advance(epoch, part * steps)


def check_whole(session: FeedSession) -> None:
    """Refuse `predict` in a shuffled order; warn once if samples are left out."""
    plan = session.plan
    whole = 'shuffle=False, tail="pad", on_bad="mask"'
    calls = (
        (frame.f_code.co_name, frame.f_locals)
        for frame in callers()
        if frame.f_code.co_name in ("fit", "evaluate", "predict")
    )
    found = ((name, known) for name, known in calls if {"self", "callbacks"} <= known.keys())
    name, known = next(found, ("", {}))
    if name == "predict" and plan.shuffle != "none":
        raise ConfigError(
            f"predict needs a feed in the order of its source, got shuffle={str(plan.shuffle)!r}:"
            f" nothing tells which prediction belongs to which file; create one with {whole}",
            field="x",
        )
    skipped = 0 if plan.counts else plan.length - plan.steps * plan.global_batch
    if (
        name in ("evaluate", "predict")
        and known.get("steps") is None
        and skipped > 0
        and session not in _warned
    ):
        _warned.add(session)
        warn(
            f"{name} leaves out {skipped:,} of {plan.length:,} samples: the feed drops an"
            f" incomplete last batch; create one with {whole}",
            stacklevel=2,
        )


def fitted_feed() -> Any:
    """The feed or watched loader that the calling `fit` trains on; None for other data."""
    return _find_feed(_fit_locals().get("x"))


def callers() -> Iterator[Any]:
    """Frames of the functions that call this, from the innermost on."""
    frame: Any = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _fit_locals() -> Mapping[str, Any]:
    """Return the local variables of the innermost running `fit` of Keras; empty if none runs."""
    fits = (frame.f_locals for frame in callers() if frame.f_code.co_name == "fit")
    return next((known for known in fits if "validation_data" in known), {})


def _find_feed(data: Any) -> Any:
    """The feed, or the watched loader, behind an argument of `fit`."""
    owner = getattr(data, "_fastfeed", None)
    return getattr(owner, "session", owner)  # a dataset's owner may be the epochs of a feed
