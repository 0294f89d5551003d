"""Rules for the paths that untrusted tables and indexes may name.

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

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.storage.byte_sizes import max_body
from fastfeed.storage.reads import is_local
from fastfeed.storage.storage import Storage

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
    """Reason for refusing a read, and what would allow it; "" for what is allowed already."""

    why: str
    path: str = ""  # a folder
    host: str = ""
    scheme: str = ""

    @property
    def detail(self) -> str:
        """The reason and the advice, for the list of bad samples."""
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
            host, port, why = _parse_host(uri)
            if why:
                return Refusal(why, host="", scheme=allow_scheme)
            if not self.names(host, port) and not (scheme in _PORTS and is_public(host)):
                kind = "a private address" if scheme in _PORTS else "a host that was not named"
                problems.append(f"{host} is {kind}")
                allow_host = host if port == _PORTS.get(scheme, 0) else f"{host}:{port}"
        if problems:
            return Refusal(" and ".join(problems), host=allow_host, scheme=allow_scheme)
        return None

    def url_error(self, url: str) -> str | None:
        """Error text for an address that may not be read, as a redirect may lead to."""
        refusal = self.refusal(url)
        return None if refusal is None else REFUSED + refusal.detail

    def resolved_error(self, host: str, addresses: Sequence[str]) -> str | None:
        """Error text for a host that resolves to a private address."""
        private = next((address for address in addresses if not is_public(address)), None)
        if private is None:
            return None
        return REFUSED + Refusal(f"{host} is {private}, a private address", host=host).detail

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
        roots = [os.path.abspath(root) for root in self.roots if is_local(root)]
        where = f"outside of {', '.join(roots)}" if roots else "a local file"
        if real != lexical and any(lexical.startswith(os.path.join(root, "")) for root in roots):
            where = f"a link to {real}, {where}"
        return Refusal(where, path=os.path.dirname(real))


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


def parse_allow(paths: object, hosts: object, schemes: object, who: str) -> Allow:
    """The `allow_` options of a source. ConfigError."""
    named = {"allow_path": paths, "allow_host": hosts, "allow_scheme": schemes}
    return Allow(*(allowed_values(option, values, who) for option, values in named.items()))


def allowed_values(option: str, values: object, who: str) -> tuple[str, ...]:
    """The values of allow_path, allow_host or allow_scheme. ConfigError."""
    listed: Any = [values] if isinstance(values, (str, os.PathLike)) else values
    items = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in listed]
    if any(not isinstance(item, str) or not item for item in items):
        raise ConfigError.of(f"{who}: {option}", "a list of texts", values)
    if option == "allow_scheme":
        items = [item.removesuffix("://") for item in items]
    if option == "allow_host" and (wrong := [item for item in items if not _HOST.fullmatch(item)]):
        raise ConfigError.of(
            f"{who}: allow_host", "a host, or host:port, without a scheme", wrong[0]
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
    scheme = _scheme(uri)
    (host, port, _) = _parse_host(uri.replace(_user_info(uri), "", 1))
    return host if scheme in _BUCKETS else f"{host}:{port}"


def _user_info(uri: str) -> str:
    authority = re.split(r"[/?#\\]", uri.partition("://")[2], maxsplit=1)[0]
    return authority[: authority.rindex("@") + 1] if "@" in authority else ""


def _parse_host(uri: str) -> tuple[str, int, str]:
    """Host and port of an address, and any problem with it."""
    authority = re.split(r"[/?#]", uri.partition("://")[2], maxsplit=1)[0]
    if "@" in authority:
        return "", 0, "its address has a user name"
    match = _HOST.fullmatch(authority)
    if not match:
        return "", 0, f"its address has no valid host: {printable(repr(authority), 80)}"
    return match[1].lower().rstrip("."), int(match[2] or _PORTS.get(_scheme(uri), 0)), ""


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


def guarded(storage: Storage, access: Access) -> Storage:
    """The same storage with a client that checks what web addresses redirect and resolve to.

    The caller's headers go to hosts that the caller named, and to no other. A client of the
    caller's own stays.
    """
    if "get_client" in storage.options:
        return storage
    try:
        from fastfeed.storage.http_client import GuardedClient  # loads aiohttp
    except ImportError:  # the storage says what is missing
        return storage
    options = storage.options | {"get_client": GuardedClient(access, max_body(storage.options))}
    return Storage(options, cache=storage.cache, in_flight=storage.in_flight, policy=storage.policy)


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
        folders = [uri[: uri.rfind("/") + 1] or "." for uri in indexes]
        self._access = Access.of([*own, *indexes], folders, *allow)

    def resolve(self, index: str, base: str, name: Any) -> str:
        """The address of a file that `index` names.

        ValueError if it is not a name, SourceError if it is not allowed.

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
            address = _joined_address(base, address)
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


def _joined_address(base: str, name: str) -> str:
    """Resolve a name against the folder of `base`; addresses are normalized, without `..`."""
    if is_local(base):
        return os.path.join(os.path.dirname(base), name)
    scheme, _, rest = base.partition("://")
    host, _, path = rest.partition("/")
    path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), name))
    return f"{scheme}://{host}/{path.lstrip('/')}"
