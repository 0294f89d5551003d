"""Selection of a job's bad images by reason, class, folder or name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.record import REASONS, BadSample


@dataclass(frozen=True, slots=True)
class BadImage:
    """A bad image, with its place in the source and in the plan."""

    sample: BadSample
    shard: int  # index of the shard that lacks it
    name: str  # relative to the source; in full if it is outside
    class_name: str  # "": none, or not known

    @property
    def folder(self) -> str:
        """The folder or shard of the source that it is in; "." at the top."""
        return self.name.rpartition("/")[0] or "."


@dataclass(frozen=True, slots=True)
class BadFilter:
    """Selection of bad images; an image must match each criterion that is not empty.

    Args:
        reasons (Collection[str]): Reasons, such as "io_error". Default: ().
        classes (Collection[str]): Names of classes. Default: ().
        folders (Collection[str]): Folders of the source, relative to it or in full; folders below
            are included. Default: ().
        names (Collection[str]): URIs, relative to the source or in full. Default: ().

    Raises:
        ConfigError: A reason is unknown, or a criterion is a string.

    Example:
        >>> from fastfeed.preprocess import BadFilter
        >>> BadFilter(["io_error"], folders=["cats"]).text
        'reason io_error, folder cats'
    """

    reasons: Collection[str] = ()
    classes: Collection[str] = ()
    folders: Collection[str] = ()
    names: Collection[str] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            values = getattr(self, item.name)
            if isinstance(values, str):
                raise ConfigError.of(f"BadFilter {item.name}", "a list of names", values)
            object.__setattr__(self, item.name, tuple(dict.fromkeys(values)))
        if unknown := [reason for reason in self.reasons if reason not in REASONS]:
            raise ConfigError(
                f"reason must be among {', '.join(REASONS)}, got {', '.join(unknown)}",
                field="reason",
            )
        # a set finds a name among a million, and a folder among those above an image
        object.__setattr__(self, "names", frozenset(self.names))
        folders = (folder.rstrip("/").removeprefix("./") or "." for folder in self.folders)
        object.__setattr__(self, "folders", tuple(folders))

    @classmethod
    def of(cls, retry: Collection[str] | BadFilter) -> BadFilter:
        """The filter itself, or one of these reasons.

        Args:
            retry (Collection[str] | BadFilter): Reasons, or a filter.

        Returns:
            The filter.

        Example:
            >>> from fastfeed.preprocess import BadFilter
            >>> BadFilter.of(["io_error"]).text
            'reason io_error'
        """
        if isinstance(retry, BadFilter):
            return retry
        return cls((retry,) if isinstance(retry, str) else retry)

    def __bool__(self) -> bool:
        return bool(self.reasons or self.classes or self.folders or self.names)

    @property
    def text(self) -> str:
        """The criteria of the filter in words."""
        parts = [f"reason {', '.join(self.reasons)}"] if self.reasons else []
        parts += [f"class {', '.join(self.classes)}"] if self.classes else []
        parts += [f"folder {', '.join(self.folders)}"] if self.folders else []
        return ", ".join([*parts, *([f"{len(self.names):,} names"] if self.names else [])])

    def accepts(self, image: BadImage) -> bool:
        """Test if an image matches.

        Args:
            image (BadImage): A bad image of a job.

        Returns:
            True if it matches each criterion.

        Example:
            >>> from fastfeed.preprocess import BadFilter
            >>> from fastfeed.preprocess.model.bad_filter import BadImage
            >>> from fastfeed.preprocess.model.record import BadSample
            >>> bad = BadSample(3, "cats/3.jpg", "io_error")
            >>> BadFilter(["io_error"]).accepts(BadImage(bad, 0, "cats/3.jpg", "cats"))
            True
        """
        uris = image.name, image.sample.uri
        below = tuple(f"{folder}/" for folder in self.folders)
        return (
            (not self.reasons or image.sample.reason in self.reasons)
            and (not self.classes or image.class_name in self.classes)
            and (not self.folders or "." in self.folders or any(u.startswith(below) for u in uris))
            and (not self.names or not self.names.isdisjoint(uris))  # type: ignore[attr-defined]
        )
