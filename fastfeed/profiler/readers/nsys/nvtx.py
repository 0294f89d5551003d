"""Reads the NVTX ranges of an export: names, domains, open ranges, kinds, and payloads of NCCL.

Payloads have bytes and communicator of a collective, and the rank of a process. A payload in
NVTX_EVENTS.binaryData is a header (domain u32, flags u32, schema u32, flags u32, payload bytes u64,
total bytes u64), then fields as NVTX_PAYLOAD_SCHEMA_ENTRIES lists them. Exports have them with
--include-blobs=true only.
"""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.kernel_names import range_kind
from fastfeed.profiler.model.trace import Kind, RangeKind, Strings
from fastfeed.profiler.readers.nsys.database import ColumnMap, NsysDatabase
from fastfeed.profiler.readers.nsys.identity import to_global_pid
from fastfeed.profiler.readers.nsys.ops import NAME

_TABLE = "NVTX_EVENTS"
_PUSH_POP = 59
_START_END = 60
_NVTXT_PUSH_POP = 70
_NVTXT_START_END = 71
_DOMAIN = 75
_RANGES = (
    f"eventType IN ({_PUSH_POP}, {_START_END}, {_NVTXT_PUSH_POP}, {_NVTXT_START_END}) AND start IS"
    " NOT NULL"
)
# torch.autograd.profiler.emit_nvtx: "aten::add, seq = 12, op_id = 345, sizes = [[2, 3]]"
_OPERATOR = (", seq", ", op_id", ", sizes", ", input_op_ids")
_SHORTENED = "\x1d"  # after a shortened name
# domains of the Python package nvtx: its default, and ours; libraries may leave theirs empty
_PYTHON = ("NVTX", "fastfeed")
_MAX_NAME = 400  # characters of a name
_HOLDS_GIL = 255
_SHORT_TEXT = (  # what stands before the first " = " says whether it is an operator's
    f"CASE WHEN instr(text, ' = ') = 0 THEN substr(text, 1, {_MAX_NAME}) "
    + " ".join(
        f"WHEN substr(text, instr(text, ' = ') - {len(part)}, {len(part)}) = '{part}'"
        f" THEN substr(text, 1, instr(text, ' = ') - {len(part) + 1}) || '{_SHORTENED}'"
        for part in _OPERATOR
    )
    + f" ELSE substr(text, 1, {_MAX_NAME}) END"
)


def raw_nvtx(db: NsysDatabase, names: Strings) -> tuple[ColumnMap, tuple[str, ...]]:
    """All ranges, and notes about them for the user.

    Columns: start, end (-1 while open), globalTid, name, kind, domain. What began on one thread and
    ended on another belongs to none.
    """
    if not db.has(_TABLE, "start", "eventType"):
        return _no_ranges(), ()
    columns = ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId")
    rows = db.columns(_TABLE, columns, _RANGES)
    domains = _domains(db)
    name, operator = _name_indexes(db, rows["textId"], names)
    domain = _domain_names(rows, domains, names)
    moved_thread = (rows["endGlobalTid"] != -1) & (rows["endGlobalTid"] != rows["globalTid"])
    thread = np.where(
        (rows["eventType"] % 10 != 9) & moved_thread & (rows["end"] != -1), -1, rows["globalTid"]
    )
    ranges = {
        "start": rows["start"],
        "end": rows["end"],
        "globalTid": thread,
        NAME: name,
        "domain": domain,
    }
    ranges["kind"] = _range_kinds(name, domain, operator, names)
    is_range = ranges["kind"] != _HOLDS_GIL
    ranges = {key: column[is_range] for key, column in ranges.items()}
    return ranges, _empty_domains(rows, domains)


def _no_ranges() -> ColumnMap:
    times = {key: np.empty(0, np.int64) for key in ("start", "end", "globalTid")}
    indexes = {key: np.empty(0, np.int32) for key in (NAME, "domain")}
    return {**times, **indexes, "kind": np.empty(0, np.uint8)}


def _name_indexes(
    db: NsysDatabase, ids: np.ndarray, names: Strings
) -> tuple[np.ndarray, np.ndarray]:
    """Name indexes, and which ranges are PyTorch operators, whose names would hold numbers.

    The name is in `text`, or, for a registered string, referenced by `textId`.
    """
    registered = db.strings(np.unique(ids[ids != -1]))
    name = np.full(len(ids), -1, np.int32)
    operator = np.zeros(len(ids), bool)
    index = _RangeNames(names)
    count = 0
    for texts in db.texts(_TABLE, "text", _SHORT_TEXT, _RANGES) if db.has(_TABLE, "text") else ():
        name[count : count + len(texts)] = np.fromiter(
            map(index.__getitem__, texts), np.int32, len(texts)
        )
        count += len(texts)
    operator[name < -1] = True
    name = np.where(name < -1, -2 - name, name).astype(np.int32)
    for at in np.flatnonzero(name == -1).tolist():
        name[at] = names[registered.get(int(ids[at]), "")[:_MAX_NAME]]
    return name, operator


class _RangeNames(dict[str | None, int]):
    """Indexes of names by texts that SQL shortened: -2 - index for an operator, -1 for no text."""

    def __init__(self, names: Strings) -> None:
        super().__init__({None: -1})
        self.names = names

    def __missing__(self, text: str) -> int:
        index = -2 - self.names[text[:-1]] if text.endswith(_SHORTENED) else self.names[text]
        self[text] = index
        return index


def _domains(db: NsysDatabase) -> dict[tuple[int, int], str]:
    """(globalPid, id) to name, from the events that created them."""
    if not db.has(_TABLE, "domainId", "globalTid"):
        return {}
    events = db.records(
        _TABLE, ["globalTid", "domainId", "textId"], ["text"], f"eventType = {_DOMAIN}"
    )
    texts = db.strings(
        np.array(sorted({text_id for _, _, text_id, _ in events if text_id is not None}), np.int64)
    )
    return {
        (int(to_global_pid(np.array([tid]))[0]), domain): text or texts.get(text_id, "")
        for tid, domain, text_id, text in events
        if tid is not None and domain is not None
    }


def _domain_names(
    rows: ColumnMap, domains: dict[tuple[int, int], str], names: Strings
) -> np.ndarray:
    """Domain names; without a creation event "domain 5"; domain 0 is NVTX's own, -1."""
    names_ = np.full(len(rows["start"]), -1, np.int32)
    pids = to_global_pid(rows["globalTid"])
    others = {}
    for number in np.unique(rows["domainId"]).tolist():
        if number <= 0:
            continue
        rows_ = np.flatnonzero(rows["domainId"] == number)
        for pid in np.unique(pids[rows_]).tolist():
            others[number] = domains.get((pid, number)) or f"domain {number}"
            names_[rows_[pids[rows_] == pid]] = names[others[number]]
    return names_


def _range_kinds(
    name: np.ndarray, domain: np.ndarray, operator: np.ndarray, names: Strings
) -> np.ndarray:
    """RangeKind of each range; _HOLDS_GIL is not a wait, and would hide what runs in it."""
    kind = np.array([_kind_by_name(text) for text in names.all] or [0], np.uint8)[name]
    kind[operator & (kind == RangeKind.NVTX)] = RangeKind.OP
    for index in np.unique(domain[domain >= 0]).tolist():
        if re.search(r"\bGIL\b|global interpreter lock", names.all[index], re.I):
            waits = np.array(
                [bool(re.search(r"wait|acquir|request", text, re.I)) for text in names.all]
            )[name]
            kind[domain == index] = np.where(waits[domain == index], RangeKind.GIL, _HOLDS_GIL)
    return kind


def _kind_by_name(text: str) -> int:
    is_named = text.startswith(("fastfeed:", "aten::"))
    if not is_named and re.search(r"\bGIL\b", text):
        return RangeKind.GIL if re.search(r"wait|acquir|request", text, re.I) else _HOLDS_GIL
    return range_kind(text)


def _empty_domains(rows: ColumnMap, domains: dict[tuple[int, int], str]) -> tuple[str, ...]:
    """Note on Python's domains without a range: nvtx writes none under an nsys too old for it."""
    pairs = (
        set(zip(to_global_pid(rows["globalTid"]).tolist(), rows["domainId"].tolist(), strict=True))
        if domains
        else set()
    )
    unused = sorted(
        {name for pair, name in domains.items() if pair not in pairs and name in _PYTHON}
    )
    if not unused:
        return ()
    return (
        (
            f"NVTX domain {', '.join(unused)} holds no range: the Python package nvtx 0.2.12 and"
            " later writes none under older versions of nsys; take a newer nsys, or pip install"
            " 'nvtx<0.2.12'"
        ),
    )


_HEADER = struct.Struct("<IIIIQQ")
# NVTX_PAYLOAD_ENTRY_TYPE: int, unsigned, 32 and 64 bits of both, size_t
_FIELDS = {5: "<i", 6: "<I", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
_COMM = "NCCL communicator ID"
_BYTES = "Message size [bytes]"
_RANKS = "No. of ranks"
_RANK = "Rank"


@dataclass(frozen=True, slots=True)
class NcclRange:
    """One range of NCCL with a payload."""

    tid: int  # globalTid
    start: int
    end: int
    fields: dict[str, int]


def nccl_ranges(db: NsysDatabase) -> list[NcclRange]:
    """All ranges of NCCL with a payload, in order of start."""
    table = "NVTX_EVENTS"
    sources = [name for name in ("binaryData", "jsonText") if db.has(table, name)]
    if not sources or not db.has(table, "globalTid", "end"):
        return []
    schemas = _schemas(db)
    has_payload = " OR ".join(f"{name} IS NOT NULL" for name in sources)
    where = f"WHERE eventType IN (59, 60) AND ({has_payload})"
    numbers = ", ".join(f'CAST("{name}" AS INTEGER)' for name in ("globalTid", "start", "end"))
    query = f"SELECT {numbers}, {', '.join(sources)} FROM {table} {where}"
    ranges = []
    for tid, start, end, *payloads in db.connection.execute(query):
        fields = next((fields for range_ in payloads if (fields := _decoded(range_, schemas))), {})
        if fields and None not in (tid, start, end):
            ranges.append(NcclRange(tid, start, end, fields))
    return sorted(ranges, key=lambda range_: range_.start)


def _schemas(db: NsysDatabase) -> dict[tuple[int, int], list[tuple[str, int, str]]]:
    """(domain, schema) to (name, offset, format)."""
    table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
    if not db.has(table, "domainId", "schemaId", "type", "name", "offset"):
        return {}
    schemas: dict[tuple[int, int], list[tuple[str, int, str]]] = {}
    for domain, schema, kind, offset, name in db.records(
        table, ["domainId", "schemaId", "type", "offset"], ["name"]
    ):
        if (
            kind in _FIELDS
            and name in (_COMM, _BYTES, _RANKS, _RANK)
            and 0 <= (offset or 0) < 1 << 20
        ):
            schemas.setdefault((domain, schema), []).append((name, offset or 0, _FIELDS[kind]))
    return schemas


def _decoded(
    payload: object, schemas: dict[tuple[int, int], list[tuple[str, int, str]]]
) -> dict[str, int]:
    """Fields that are known and whole; nothing of what cannot be read."""
    if isinstance(payload, str):
        if payload.lstrip().startswith("{"):
            return _from_json(payload)
        try:
            # the column is declared as text, and some writers mean it
            payload = bytes.fromhex(payload)
        except ValueError:
            return {}
    if not isinstance(payload, bytes) or len(payload) < _HEADER.size:
        return {}
    domain, _, schema, *_ = _HEADER.unpack_from(payload)
    fields = {}
    for name, offset, form in schemas.get((domain, schema), ()):
        if _HEADER.size + offset + struct.calcsize(form) <= len(payload):
            (fields[name],) = struct.unpack_from(form, payload, _HEADER.size + offset)
    return fields


def _from_json(text: str) -> dict[str, int]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return {
        key: given[key] for key in (_COMM, _BYTES, _RANKS, _RANK) if isinstance(given.get(key), int)
    }


def messages(
    ops: ColumnMap, calls: ColumnMap, payloads: list[NcclRange], names: Strings
) -> tuple[np.ndarray, np.ndarray]:
    """Communicator (int32 name, -1 unknown) and bytes of each op; other ops keep theirs.

    A launch is inside of the range of its collective, or, after ncclGroupStart, inside of
    ncclGroupEnd and then after the ranges of all that it does: those since the launch before.
    """
    group = np.full(len(ops["start"]), -1, np.int32)
    size = ops["bytes"]
    comm = np.flatnonzero(ops["kind"] == Kind.COMM)
    if not payloads or not len(comm):
        return group, size
    size = size.copy()
    launch_of = {
        (pid, corr): (tid, start)
        for tid, pid, corr, start in _launches(calls, ops["correlationId"][comm])
    }
    by_thread = {
        tid: [range_ for range_ in payloads if range_.tid == tid and _BYTES in range_.fields]
        for tid in {range_.tid for range_ in payloads}
    }
    starts = {tid: [range_.start for range_ in ranges] for tid, ranges in by_thread.items()}
    used: dict[int, int] = {}
    keys = zip(ops["globalPid"][comm].tolist(), ops["correlationId"][comm].tolist(), strict=True)
    launched = sorted(
        (*launch_of[key], op)
        for key, op in zip(keys, comm.tolist(), strict=True)
        if key in launch_of
    )
    for tid, start, op in launched:
        past = bisect_right(starts.get(tid, []), start)
        pending = by_thread[tid][used.get(tid, 0) : past] if past else []
        used[tid] = past
        if pending and start < pending[-1].end:
            pending = pending[-1:]
        if pending:
            size[op] = sum(range_.fields[_BYTES] for range_ in pending)
            comms = {range_.fields.get(_COMM) for range_ in pending}
            comm_id = comms.pop()
            group[op] = (
                names[f"{comm_id & 0xFFFFFFFFFFFFFFFF:#x}"]
                if not comms and comm_id is not None
                else -1
            )
    return group, size


def _launches(calls: ColumnMap, corrs: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """(globalTid, globalPid, correlation id, start) of the calls with one of these ids."""
    at = np.flatnonzero(np.isin(calls["correlationId"], corrs))
    tids = calls["globalTid"][at]
    columns = (tids, to_global_pid(tids), calls["correlationId"][at], calls["start"][at])
    return zip(*(column.tolist() for column in columns), strict=True)


def nccl_ranks(payloads: list[NcclRange]) -> dict[int, tuple[int, int]]:
    """globalTid's process to (rank, number of ranks) in the largest communicator that it joined."""
    ranks_: dict[int, tuple[int, int]] = {}
    for range_ in payloads:
        pid = range_.tid & ~0xFFFFFF
        rank = range_.fields.get(_RANK)
        size = range_.fields.get(_RANKS)
        if (
            rank is not None
            and size is not None
            and 0 <= rank < size
            and size > ranks_.get(pid, (0, 0))[1]
        ):
            ranks_[pid] = (rank, size)
    return ranks_
