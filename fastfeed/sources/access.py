"""Rules for what tables and indexes from elsewhere may name.

It must not make its user read whatever the user can read.
"""

from __future__ import annotations

import ipaddress
import os
import posixpath
import re
import shlex
import socket
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.storage.storage import is_local

__all__ = [
    "REFUSED",
    "Access",
    "Allow",
    "Refusal",
    "advice",
    "allow_of",
    "allowed_values",
    "is_public",
]

REFUSED = "not allowed: "  # how a client's error says that it is a refusal

# what follows :// is a bucket or a repository, which the client looks up at its own endpoint, not a
# machine's name
_BUCKETS = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "hf", "memory"}
)
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s@:/?#\\\[\]]+)(?::(\d{1,5}))?", re.I)
_NUMBER = r"(?:0x[0-9a-f]+|\d+)"
# as inet_aton reads it: 2130706433 is 127.0.0.1
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}", re.I)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_FOLDERS = 1 << 14  # whose real paths are kept


class Allow(NamedTuple):
    """Paths, hosts and schemes allowed by the `allow_` options."""

    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """Why something may not be read, and what would allow it; "" where that is allowed already."""

    why: str
    path: str = ""  # a folder
    host: str = ""
    scheme: str = ""

    @property
    def detail(self) -> str:
        """For the list of bad samples."""
        return f"{self.why}; to read it, {advice([self])}"


@dataclass(frozen=True, slots=True)
class Access:
    """Allowed paths, public hosts by https, and hosts and schemes of the roots.

    Private and loopback addresses must be named, in a root or in `hosts`. Build it with `of`.
    """

    roots: tuple[str, ...]  # where relative paths begin: folders or addresses
    folders: tuple[str, ...]  # real paths of all folders that may be read
    urls: tuple[str, ...]  # addresses below which relative paths may lead
    hosts: frozenset[str]  # "host" or "host:port"
    schemes: frozenset[str]

    @classmethod
    def of(
        cls,
        tables: Iterable[str],
        roots: Iterable[str],
        paths: Sequence[str] = (),
        hosts: Sequence[str] = (),
        schemes: Sequence[str] = (),
    ) -> Access:
        """Build the rules from addresses of tables, roots of relative paths and allowed names."""
        roots = tuple(dict.fromkeys(roots))
        named = (*roots, *tables)
        own = [uri for uri in named if not is_local(uri)]
        folders = [path.removeprefix("file://") for path in (*roots, *paths)]
        return cls(
            roots,
            tuple(
                dict.fromkeys(os.path.realpath(folder) for folder in folders if is_local(folder))
            ),
            tuple(
                posixpath.normpath(url).replace(":/", "://", 1)
                for url in (*roots, *paths)
                if not is_local(url)
            ),
            frozenset({host.lower().rstrip(".") for host in hosts} | {_netloc(uri) for uri in own}),
            frozenset(
                {"https", *(scheme.lower() for scheme in schemes), *(_scheme(uri) for uri in own)}
            ),
        )

    def refusal(self, uri: str, path: str = "") -> Refusal | None:
        """Why an address or a local path may not be read; None if it may.

        `path`: as the table has it.
        """
        if "://" not in uri:
            return self._of_path(uri)
        scheme = _scheme(uri)
        if path and "://" not in path:  # relative to an address
            if not any(uri.startswith(url.rstrip("/") + "/") for url in self.urls):
                return Refusal(f"outside of {', '.join(self.urls)}", path=uri.rpartition("/")[0])
            return None
        allow_scheme = "" if scheme in self.schemes else scheme
        problems = [f"{scheme} is not an allowed scheme"] if allow_scheme else []
        allow_host = ""
        if scheme not in _BUCKETS:
            host, port, why = _host_of(uri)
            if why:
                return Refusal(why, host="", scheme=allow_scheme)
            if not self.names(host, port) and not (scheme in _PORTS and is_public(host)):
                kind = "a private address" if scheme in _PORTS else "a host that was not named"
                problems.append(f"{host} is {kind}")
                allow_host = _joined(host, port, scheme)
        if problems:
            return Refusal(" and ".join(problems), host=allow_host, scheme=allow_scheme)
        return None

    def left(self, path: str) -> Refusal:
        """Refuse a local file that was outside the allowed folders once it was opened."""
        _real_folder.cache_clear()  # links have changed
        return self._of_path(path) or Refusal(f"{path} was replaced while it was read")

    def names(self, host: str, port: int) -> bool:
        """Return True if this host was named, with this port or without a port."""
        host = host.lower().rstrip(".")
        return host in self.hosts or f"{host}:{port}" in self.hosts

    def _of_path(self, path: str) -> Refusal | None:
        folder, name = os.path.split(path)
        try:
            if name in ("", ".", "..") or os.path.islink(path):
                real = os.path.realpath(path)
            else:
                real = os.path.join(_real_folder(os.path.join(os.getcwd(), folder)), name)
        except (OSError, ValueError):  # a zero byte, or a loop: reading it says so
            return None
        if any(
            os.path.join(real, "").startswith(os.path.join(folder, "")) for folder in self.folders
        ):
            return None
        lexical = os.path.abspath(path)
        places = [root for root in self.roots if is_local(root)]
        where = (
            f"outside of {', '.join(os.path.abspath(root) for root in places)}"
            if places
            else "a local file"
        )
        if real != lexical and self._is_below(lexical):
            where = f"a link to {real}, {where}"
        return Refusal(where, path=os.path.dirname(real))

    def _is_below(self, path: str) -> bool:
        roots = [os.path.abspath(root) for root in self.roots if is_local(root)]
        return any(path.startswith(os.path.join(root, "")) for root in roots)


def advice(refusals: Sequence[Refusal]) -> str:
    """Options that would allow all of these, in Python and on the command line."""
    options = {
        "allow_path": _common_folders([refusal.path for refusal in refusals if refusal.path]),
        "allow_scheme": sorted({refusal.scheme for refusal in refusals if refusal.scheme}),
        "allow_host": sorted({refusal.host for refusal in refusals if refusal.host}),
    }
    if not any(options.values()):
        return "write the address in another way"
    python = ", ".join(f"{name}={values!r}" for name, values in options.items() if values)
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(value)}"
        for name in options
        for value in options[name]
    ]
    return f"pass {python} ({' '.join(words)})"


def allow_of(paths: object, hosts: object, schemes: object, who: str) -> Allow:
    """The `allow_` options of a source. ConfigError."""
    named = {"allow_path": paths, "allow_host": hosts, "allow_scheme": schemes}
    return Allow(*(allowed_values(option, values, who) for option, values in named.items()))


def allowed_values(option: str, values: object, who: str) -> tuple[str, ...]:
    """The values of allow_path, allow_host or allow_scheme. ConfigError."""
    listed: Any = [values] if isinstance(values, (str, os.PathLike)) else values
    items = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in listed]
    if any(not isinstance(item, str) or not item for item in items):
        raise ConfigError(f"{who}: {option} must be a list of texts, got {values!r}")
    if option == "allow_scheme":
        items = [item.removesuffix("://") for item in items]
    if option == "allow_host" and (wrong := [item for item in items if not _HOST.fullmatch(item)]):
        raise ConfigError(
            f"{who}: allow_host must be a host, or host:port, without a scheme, got {wrong[0]!r}"
        )
    return tuple(items)


def is_public(host: str) -> bool:
    """Return False for names and addresses of this machine or a private network."""
    host = unicodedata.normalize("NFKC", host).lower().rstrip(".").strip("[]")
    if host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        if _NUMERIC.fullmatch(host):
            address: ipaddress.IPv4Address | ipaddress.IPv6Address
            address = ipaddress.IPv4Address(socket.inet_aton(host))
        else:
            address = ipaddress.ip_address(host.partition("%")[0])
    except (OSError, ValueError):
        return True  # a name: it is looked at again when it is resolved
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_global and not address.is_multicast


def _scheme(uri: str) -> str:
    return uri.partition("://")[0].lower()


def _netloc(uri: str) -> str:
    """Host of an address the user named, with its port for HTTP."""
    scheme, (host, port, _) = _scheme(uri), _host_of(uri.replace(_user_of(uri), "", 1))
    return host if scheme in _BUCKETS else f"{host}:{port}"


def _user_of(uri: str) -> str:
    authority = re.split(r"[/?#\\]", uri.partition("://")[2], maxsplit=1)[0]
    return authority[: authority.rindex("@") + 1] if "@" in authority else ""


def _host_of(uri: str) -> tuple[str, int, str]:
    """Host and port of an address, and what is wrong with it."""
    authority = re.split(r"[/?#]", uri.partition("://")[2], maxsplit=1)[0]
    if "@" in authority:
        return "", 0, "its address has a user name"
    match = _HOST.fullmatch(authority)
    if not match:
        return "", 0, f"its address has no valid host: {printable(repr(authority), 80)}"
    return match[1].lower().rstrip("."), int(match[2] or _PORTS.get(_scheme(uri), 0)), ""


def _joined(host: str, port: int, scheme: str) -> str:
    return host if port == _PORTS.get(scheme, 0) else f"{host}:{port}"


def _common_folders(folders: Sequence[str]) -> list[str]:
    """A few folders that hold all of these."""
    local = sorted({folder for folder in folders if is_local(folder)})
    others = sorted({folder for folder in folders if not is_local(folder)})
    if local:
        common = os.path.commonpath(local)
        if common == "/" and len(local) > 1:
            tops = sorted({"/".join(folder.split("/")[:2]) or "/" for folder in local})
            local = tops if len(tops) <= 4 else ["/"]
        else:
            local = [common]
    return local + others[:4]


@lru_cache(_FOLDERS)  # of absolute paths: the working folder may change
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)
