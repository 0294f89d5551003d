"""Regular expressions that parse events, one for each order of keys that a writer uses.

Writers have one order for all their complete events. Kineto's is known, others are learned from the
first piece.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

_MAX_KEYS = 20  # keys
KINETO = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")

# an object ends here and the next begins; a quote in a string has a backslash, so this is no part
# of a string
_BETWEEN = rb"\}\s*,\s*\{"
BOUNDARIES = re.compile(_BETWEEN + rb'(?=\s*"\w+"\s*:)')
# flow arrows, counters and instants, which are not used, are consumed with the separator before
# them
_NEXT = _BETWEEN + rb'(?:\s*%b"ph":\s*"[^XBEM]"[^}]*\}(?:\s*\})?\s*,\s*\{)*(?=\s*"\w+"\s*:)'
_OTHER = rb'((?:[^}]+|\}(?!\s*,\s*\{\s*"\w+"\s*:))*)'
_SIMPLE = rb'(?:"[^"]*"|[^,{}"\[\]]+)'
_NUMBER = rb'"?(-?[\d.]+)"?'
# PyTorch leaves quotes in names as they are: one that no comma and no brace follows does not end
# the name
_NAME = rb'"name":\s*"([^"]*(?:"(?!\s*[,}])[^"\n]*)*)"'
_FIELDS = {"cat": rb'"cat":\s*"([^"\\]+)"', "name": _NAME, "ph": rb'"ph":\s*"X"'}
_FIELDS |= {"ts": rb'"ts":\s*' + _NUMBER, "dur": rb'"dur":\s*' + _NUMBER}
_COLUMNS = ("cat", "name", "thread_key", "ts", "dur", "args")


class KeyLayout:
    """`rows(piece)`: tuples of cat, name, thread_key, ts, dur, args, and the text of other events.

    With such text, the six before it are empty. Raises `ValueError` for an unsupported order of
    keys.
    """

    def __init__(self, keys: Sequence[str] = KINETO) -> None:
        is_complete = {"ph", "name", "pid", "tid", "ts", "dur"} <= set(keys) and len(
            keys
        ) <= _MAX_KEYS
        if not is_complete or abs(keys.index("pid") - keys.index("tid")) > 1:
            raise ValueError(f"no complete event has the keys {', '.join(keys)}")
        self.keys = tuple(keys)
        # a negated set takes three times as long as one negated character
        self._quick, self._exact = (_pattern(self.keys, args) for args in (rb"[^}]*", rb"[^{}]*"))
        groups = [name for name in self._names() if name in _COLUMNS]
        none = len(groups) + 1  # a group that is always empty, after the one of other text
        order = [groups.index(name) if name in groups else none for name in _COLUMNS] + [
            len(groups)
        ]
        self._args = groups.index("args") if "args" in groups else -1
        self._pick: Callable[[Any], Any] | None = (
            None if order == list(range(none)) else itemgetter(*order)
        )

    def rows(self, piece: bytes) -> Iterable[Any]:
        at = self._args
        rows = self._quick.findall(piece)
        # objects in arguments: their end may look like that of the event
        if at >= 0 and b"{" in b"".join([row[at] for row in rows]):
            rows = self._exact.findall(piece)
        return map(self._pick, rows) if self._pick else rows

    def _names(self) -> list[str]:
        """Groups of the pattern, in order."""
        names = ["thread_key" if key in ("pid", "tid") else key for key in self.keys]
        return [
            name
            for name, before in zip(names, ["", *names], strict=False)
            if (name, before) != ("thread_key", "thread_key")
        ]


def learn_layout(events: Iterable[Mapping[str, Any]]) -> KeyLayout | None:
    """The layout of most of these complete events."""
    orders = Counter(
        tuple(event) for event in events if isinstance(event, dict) and event.get("ph") == "X"
    )
    for order, _ in orders.most_common(1):
        try:
            return KeyLayout(order)
        except ValueError:
            return None
    return None


def _pattern(keys: tuple[str, ...], args: bytes) -> re.Pattern[bytes]:
    text = b""
    for at, key in enumerate(keys):
        comma = rb",\s*" if at else b""
        if key == "args":  # the only one that an event may lack
            inside = rb'"args":\s*\{(' + args + rb")\}"
            text += rb"(?:%b%b\s*)?" % (rb"\s*,\s*", inside) if at else rb"(?:%b\s*,\s*)?" % inside
        elif key in ("pid", "tid"):
            pair = rb'"%b":\s*%b' % (key.encode(), _SIMPLE)
            second = bool(at) and keys[at - 1] in ("pid", "tid")
            text += comma + pair + rb")" if second else comma + rb"(" + pair
        else:
            text += comma + _FIELDS.get(
                key, rb'"%b":\s*%b' % (re.escape(key.encode("utf-8", "replace")), _SIMPLE)
            )
    if keys[0] == "args":
        text = text.replace(rb"\s*,\s*)?,\s*", rb"\s*,\s*)?", 1)
    before = b"" if keys[0] == "ph" else rb'(?:"(?!ph")\w+":\s*' + _SIMPLE + rb",\s*){0,9}"
    following = _NEXT.replace(b"%b", before)
    return re.compile(
        rb"(?:\s*%b\s*(?:%b|\Z)|%b(?:%b|\Z))()" % (text, following, _OTHER, following)
    )
