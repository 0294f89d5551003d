"""Every error that fastfeed raises on purpose, drawn as a tree.

    FastfeedError
    ├── ConfigError (ValueError)          a wrong argument; raised before any byte is read
    │   ├── SpecError                     an op that cannot follow the ops before it
    │   └── StateError                    a saved position that does not fit this feed
    ├── MissingExtra (ImportError)        an optional package is missing; names the pip command
    ├── SourceError (OSError)             a data source cannot be opened or listed
    ├── StorageError (OSError)            storage is down, or no more files can be opened
    ├── TargetError (OSError)             the output cannot be written; keeps the errno
    ├── SampleError (RuntimeError)        a bad sample with policy "raise", or a failing user function
    ├── TooManyFailures (RuntimeError)    the fault limits are exceeded; carries the failures
    ├── FeedClosed (RuntimeError)         iteration over a closed feed
    ├── TraceError (ValueError)           a trace cannot be read, or is empty
    ├── ProofError (RuntimeError)         a proof cannot be made, or a call is refused during one
    ├── DeviceError (RuntimeError)        a GPU, its driver or its decoder failed, for any sample
    └── DeviceMemory (MemoryError)        the device has no room for a batch; says what to lower

Texts say what, got, allowed, next: "rank must be in [0, 4), got 4; pass the global rank, not the
local one". Values of others are cut and escaped by `fastfeed.printable`. `help_url` is the place in
the documentation, of kinds that docs/failures.md describes.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from fastfeed.printable import printable, printable_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ConfigError",
    "DeviceError",
    "DeviceMemory",
    "FastfeedError",
    "FeedClosed",
    "MissingExtra",
    "ProofError",
    "SampleError",
    "SourceError",
    "SpecError",
    "StateError",
    "StorageError",
    "TargetError",
    "TooManyFailures",
    "TraceError",
]


class FastfeedError(Exception):
    """The family of all errors that fastfeed raises on purpose.

    Args:
        *args (object): The text, which is made printable: it may quote files from elsewhere.

    Example:
        >>> try:
        ...     ff.Rotate(1000)
        ... except ff.errors.FastfeedError as error:
        ...     print(type(error).__name__)
        ConfigError
    """

    help_url: ClassVar[str] = ""
    """Page and anchor in the documentation, shown below the text; "" for none."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable_message(arg) if isinstance(arg, str) else arg for arg in args))
        if self.help_url:
            self.__notes__ = [f"See {self.help_url}"]  # PEP 678; Python 3.10 does not print it


@contextmanager
def speaking_for(name: str, owner: str) -> Iterator[None]:
    """Errors of shared code that begin with its owner's name begin with this name instead."""
    try:
        yield
    except FastfeedError as error:
        error.args = (re.sub(rf"^{owner}\b", name, str(error)), *error.args[1:])
        raise


class ConfigError(FastfeedError, ValueError):
    """An argument is wrong; raised at construction, before a byte is read.

    Also a ValueError. The text says what, got, allowed, and what to write instead.

    Args:
        *args (object): The text.
        field (str): Name of the argument, which the command line shows as its option, or of the
            environment variable; "" for none or several. Default: "".

    Example:
        >>> ff.RandomFlip(1.5)
        Traceback (most recent call last):
            ...
        fastfeed.errors.ConfigError: RandomFlip p must be in [0, 1], got 1.5
    """

    def __init__(self, *args: object, field: str = "") -> None:
        super().__init__(*args)
        self.field = field

    @classmethod
    def of(cls, name: str, must: str, got: object, advice: str = "") -> ConfigError:
        """The error `NAME must be MUST, got GOT; ADVICE`.

        Args:
            name (str): The argument, after its owner if that helps: "p", "Rotate p", "Part.weight".
                Its last name is the field.
            must (str): Allowed values.
            got (object): The wrong value.
            advice (str): What to write instead. Default: "".

        Returns:
            The error, to be raised.

        Example:
            >>> ff.errors.ConfigError.of("Part.weight", "above 0", -1).field
            'weight'
        """
        text = f"{name} must be {must}, got {printable(repr(got))}"
        names = re.findall(r"[A-Za-z_]\w*", name)
        return cls(f"{text}; {advice}" if advice else text, field=names[-1])


class SpecError(ConfigError):
    """An op cannot follow what comes before it, or nothing can make its input.

    Args:
        *args (object): The text.
        field (str): Name of the argument. Default: "ops".

    Example:
        >>> ff.Feed(ff.ImageFolder("photos"), [ff.Invert()], batch=2)
        Traceback (most recent call last):
            ...
        fastfeed.errors.SpecError: Invert needs images of one size, got HWC uint8[?, ?, 3]; put ...
    """

    def __init__(self, *args: object, field: str = "ops") -> None:
        super().__init__(*args, field=field)


class StateError(ConfigError):
    """A saved position does not fit this feed, or cannot be read or written.

    Example:
        >>> try:
        ...     ff.load_state("no.json")
        ... except ff.errors.StateError as error:
        ...     print(error.help_url)
        docs/failures.md#data
    """

    help_url = "docs/failures.md#data"


class MissingExtra(FastfeedError, ImportError):
    """An optional package is needed; the text holds the pip command. Also an ImportError.

    Example:
        >>> str(ff.errors.MissingExtra.of("to_jax", "JAX", "jax"))
        "to_jax needs JAX: pip install 'fastfeed[jax]'"
    """

    @classmethod
    def of(cls, caller: str, package: str, extra: str) -> MissingExtra:
        """The error that names the pip command.

        Args:
            caller (str): What needs the package.
            package (str): Its name, for the reader.
            extra (str): The extra of fastfeed that installs it.

        Returns:
            The error, to be raised.
        """
        return cls(f"{caller} needs {package}: pip install 'fastfeed[{extra}]'")


class SourceError(FastfeedError, OSError):
    """A data source cannot be opened or listed. Also an OSError.

    Example:
        >>> ff.ImageFolder("nowhere")
        Traceback (most recent call last):
            ...
        fastfeed.errors.SourceError: ImageFolder: nowhere does not exist; pass the folder that holds
        the images
    """


class StorageError(FastfeedError, OSError):
    """Storage has not answered for longer than a run may wait (`Feed(outage=...)`).

    Also an OSError.

    Or this process or machine has no more open files or memory to read with; then `errno` says
    which. `feed.state()` holds the position, from which the run resumes.

    Example:
        >>> issubclass(ff.errors.StorageError, OSError)
        True
    """

    help_url = "docs/failures.md#storage"


class TargetError(FastfeedError, OSError):
    """The output of a job cannot be written. Also an OSError.

    Args:
        text (str): What could not be written, and what to do.
        errno (int | None): Of the system's error. Default: None, unknown.

    Example:
        >>> ff.errors.TargetError("no space left", errno=28).errno
        28
    """

    help_url = "docs/failures.md#target"

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno

    def __reduce__(self) -> tuple[type[TargetError], tuple[str, int | None]]:
        return type(self), (str(self), self.errno)


class SampleError(FastfeedError, RuntimeError):
    """A bad sample with policy "raise", or an error in your own function, which is the cause.

    A function in a `Map` may raise it with the rows that it cannot use.

    Args:
        text (str): What is wrong.
        rows (Sequence[int]): Rows of the batch whose samples are bad. Default: ().
        failure (Failure | None): The bad item of `Transform.one`. Default: None.

    Example:
        >>> def fails(image, numbers):
        ...     raise KeyError("no such color")
        >>> feed = ff.Feed(ff.Arrays(np.zeros((1, 1, 1, 3), np.uint8)), [fails], batch=1)
        >>> try:
        ...     next(iter(feed))
        ... except ff.errors.SampleError as error:
        ...     print(repr(error.__cause__))
        KeyError('no such color')
    """

    help_url = "docs/failures.md#code"

    def __init__(self, text: str, rows: Sequence[int] = (), failure: Any = None) -> None:
        super().__init__(text)
        self.rows = tuple(rows)
        self.failure = failure


class TooManyFailures(FastfeedError, RuntimeError):
    """The fault limits are exceeded (`FaultPolicy`).

    Args:
        text (str): Which limit, and the first failures.
        failures (Sequence[Failure]): The bad samples. Default: ().

    Example:
        >>> failure = ff.Failure(3, "a.jpg", "decode", "truncated")
        >>> ff.errors.TooManyFailures("2 of 4 samples are bad", [failure]).failures[0].uri
        'a.jpg'
    """

    help_url = "docs/failures.md#too-many-bad-files"

    def __init__(self, text: str, failures: Sequence[object] = ()) -> None:
        super().__init__(text)
        self.failures = tuple(failures)


class FeedClosed(FastfeedError, RuntimeError):
    """A feed, or an iterator of it, is used after it has been closed.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((2, 1, 1, 3), np.uint8)), [], batch=1)
        >>> feed.close()
        >>> try:
        ...     next(iter(feed))
        ... except ff.errors.FeedClosed:
        ...     print("closed")
        closed
    """


class TraceError(FastfeedError, ValueError):
    """A trace cannot be read, or holds nothing to analyze. Also a ValueError.

    Example:
        >>> issubclass(ff.errors.TraceError, ValueError)
        True
    """


class ProofError(FastfeedError, RuntimeError):
    """`fastfeed prove` cannot measure this trainer, or refuses a call; its weights are meaningless.

    Example:
        >>> issubclass(ff.errors.ProofError, RuntimeError)
        True
    """


class DeviceError(FastfeedError, RuntimeError):
    """A GPU, its driver or its decoder has failed, whichever sample it was given; the run ends.

    Example:
        >>> issubclass(ff.errors.DeviceError, RuntimeError)
        True
    """


class DeviceMemory(FastfeedError, MemoryError):
    """A device has no room for a batch; the text says what to lower. Also a MemoryError.

    Example:
        >>> issubclass(ff.errors.DeviceMemory, MemoryError)
        True
    """
