"""NVTX ranges of an export of Nsight Systems: texts, domains, open ranges, and whose word a range is."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.trace import RangeKind, Strings
from fastfeed.profiler.readers.nsys.database import Columns, Database
from fastfeed.profiler.readers.nsys.identity import process_of
from fastfeed.profiler.readers.nsys.ops import NAME

__all__ = ["Ranged", "raw_nvtx"]

_TABLE = "NVTX_EVENTS"
_PUSH_POP, _START_END, _NVTXT_PUSH_POP, _NVTXT_START_END, _DOMAIN = 59, 60, 70, 71, 75
_RANGES = f"eventType IN ({_PUSH_POP}, {_START_END}, {_NVTXT_PUSH_POP}, {_NVTXT_START_END}) AND start IS NOT NULL"
# torch.autograd.profiler.emit_nvtx: "aten::add, seq = 12, op_id = 345, sizes = [[2, 3]]"
_OPERATOR = (", seq", ", op_id", ", sizes", ", input_op_ids")
_CUT = "\x1d"  # behind a name that was cut
_SILENT = ("NCCL", "MPI", "CCCL", "TSL", "UCX", "NVSHMEM")  # libraries that make a domain and may well say nothing
_LONGEST = 400  # characters of a name
_HELD = 255
_SHORT = (  # what stands before the first " = " says whether it is an operator's
    f"CASE WHEN instr(text, ' = ') = 0 THEN substr(text, 1, {_LONGEST}) "
    + " ".join(
        f"WHEN substr(text, instr(text, ' = ') - {len(part)}, {len(part)}) = '{part}'"
        f" THEN substr(text, 1, instr(text, ' = ') - {len(part) + 1}) || '{_CUT}'"
        for part in _OPERATOR
    )
    + f" ELSE substr(text, 1, {_LONGEST}) END"
)


@dataclass(frozen=True, slots=True)
class Ranged:
    """Ranges, and what the user must know of them."""

    rows: Columns  # start, end (-1 while open), globalTid, name, kind, domain
    notes: tuple[str, ...]


def raw_nvtx(db: Database, names: Strings) -> Ranged:
    """All ranges. What began on one thread and ended on another belongs to none."""
    if not db.has(_TABLE, "start", "eventType"):
        return Ranged(_nothing(), ())
    wanted = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId")
    rows = db.columns(_TABLE, wanted, _RANGES)
    domains = _domains(db)
    name, operator = _named(db, rows["textId"], names)
    domain = _domain_names(rows, domains, names)
    elsewhere = (rows["endGlobalTid"] != -1) & (rows["endGlobalTid"] != rows["globalTid"])
    thread = np.where((rows["eventType"] % 10 != 9) & elsewhere & (rows["end"] != -1), -1, rows["globalTid"])
    found = {"start": rows["start"], "end": rows["end"], "globalTid": thread, NAME: name, "domain": domain}
    found["kind"] = _range_kinds(name, domain, operator, names)
    kept = found["kind"] != _HELD
    return Ranged({key: column[kept] for key, column in found.items()}, _silent(rows, domains))


def _nothing() -> Columns:
    empty = {key: np.empty(0, np.int64) for key in ("start", "end", "globalTid")}
    return {**empty, NAME: np.empty(0, np.int32), "kind": np.empty(0, np.uint8), "domain": np.empty(0, np.int32)}


def _named(db: Database, ids: np.ndarray, names: Strings) -> tuple[np.ndarray, np.ndarray]:
    """Indexes of names, and which ranges are operators of PyTorch: their numbers would make every name another.

    A text is in `text`, or, of a registered string, behind `textId`.
    """
    registered = db.strings(np.unique(ids[ids != -1]))
    name = np.full(len(ids), -1, np.int32)
    operator = np.zeros(len(ids), bool)
    known = _Known(names)
    done = 0
    for texts in db.texts(_TABLE, "text", _SHORT, _RANGES) if db.has(_TABLE, "text") else ():
        name[done : done + len(texts)] = np.fromiter(map(known.__getitem__, texts), np.int32, len(texts))
        done += len(texts)
    operator[name < -1] = True
    name = np.where(name < -1, -2 - name, name).astype(np.int32)
    for at in np.flatnonzero(name == -1).tolist():
        name[at] = names[registered.get(int(ids[at]), "")[:_LONGEST]]
    return name, operator


class _Known(dict[str | None, int]):
    """Texts as SQL cut them to indexes of names; -2 - index for an operator, -1 for no text."""

    def __init__(self, names: Strings) -> None:
        super().__init__({None: -1})
        self.names = names

    def __missing__(self, text: str) -> int:
        index = -2 - self.names[text[:-1]] if text.endswith(_CUT) else self.names[text]
        self[text] = index
        return index


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """(globalPid, id) to name, from the events that made them."""
    if not db.has(_TABLE, "domainId", "globalTid"):
        return {}
    text = "text" if db.has(_TABLE, "text") else "NULL"
    by_id = "textId" if db.has(_TABLE, "textId") else "NULL"
    made = db.rows(f"SELECT globalTid, domainId, {text}, {by_id} FROM {_TABLE} WHERE eventType = {_DOMAIN}")
    texts = db.strings(np.array(sorted({one for *_, one in made if one is not None}), np.int64))
    return {
        (int(process_of(np.array([tid]))[0]), int(domain)): str(text or texts.get(one, ""))
        for tid, domain, text, one in made
        if tid is not None and domain is not None
    }


def _domain_names(rows: Columns, domains: dict[tuple[int, int], str], names: Strings) -> np.ndarray:
    """A domain without a known maker keeps its number as a name; domain 0 is NVTX's own, -1."""
    found = np.full(len(rows["start"]), -1, np.int32)
    pids = process_of(rows["globalTid"])
    others = {}
    for number in np.unique(rows["domainId"]).tolist():
        if number <= 0:
            continue
        here = np.flatnonzero(rows["domainId"] == number)
        for pid in np.unique(pids[here]).tolist():
            others[number] = domains.get((pid, number)) or f"domain {number}"
            found[here[pids[here] == pid]] = names[others[number]]
    return found


def _range_kinds(name: np.ndarray, domain: np.ndarray, operator: np.ndarray, names: Strings) -> np.ndarray:
    """RangeKind of each range; _HELD for holding the interpreter's lock: no wait, and it would hide what runs in it."""
    kind = np.array([_kind_by_name(text) for text in names.all] or [0], np.uint8)[name]
    kind[operator & (kind == RangeKind.NVTX)] = RangeKind.OP
    for index in np.unique(domain[domain >= 0]).tolist():
        if re.search(r"\bGIL\b|global interpreter lock", names.all[index], re.I):
            waits = np.array([bool(re.search(r"wait|acquir|request", text, re.I)) for text in names.all])[name]
            kind[domain == index] = np.where(waits[domain == index], RangeKind.GIL, _HELD)
    return kind


def _kind_by_name(text: str) -> int:
    if text.startswith("fastfeed:"):
        return RangeKind.FEED
    if text.startswith("aten::"):
        return RangeKind.OP
    if re.search(r"\bGIL\b", text):
        return RangeKind.GIL if re.search(r"wait|acquir|request", text, re.I) else _HELD
    return RangeKind.GC if re.match(r"(python )?(gc|garbage collection)\b(?!\.)", text, re.I) else RangeKind.NVTX


def _silent(rows: Columns, domains: dict[tuple[int, int], str]) -> tuple[str, ...]:
    """Domains that were made and say nothing: what the Python package does under an nsys that is too old for it."""
    pairs = (
        set(zip(process_of(rows["globalTid"]).tolist(), rows["domainId"].tolist(), strict=True)) if domains else set()
    )
    quiet = sorted({name for pair, name in domains.items() if pair not in pairs and name not in _SILENT})
    if not quiet:
        return ()
    return (
        f"NVTX domain {', '.join(quiet[:3])} holds no range: the Python package nvtx 0.2.12 and later writes none under"
        " older versions of nsys; take a newer nsys, or pip install 'nvtx<0.2.12'",
    )
