"""Reads NVTX payloads of NCCL: bytes and communicator of a collective, rank of a process.

A payload in NVTX_EVENTS.binaryData is a header (domain u32, flags u32, schema u32, flags u32,
payload bytes u64, total bytes u64), then fields as NVTX_PAYLOAD_SCHEMA_ENTRIES lists them. Exports
have them with --include-blobs=true only.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.trace import Kind, Strings
from fastfeed.profiler.readers.nsys.database import ColumnMap, NsysDatabase
from fastfeed.profiler.readers.nsys.identity import process_of

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
    group, size = np.full(len(ops["start"]), -1, np.int32), ops["bytes"]
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
    columns = (tids, process_of(tids), calls["correlationId"][at], calls["start"][at])
    return zip(*(column.tolist() for column in columns), strict=True)


def ranks(payloads: list[NcclRange]) -> dict[int, tuple[int, int]]:
    """globalTid's process to (rank, number of ranks) in the largest communicator that it joined."""
    ranks_: dict[int, tuple[int, int]] = {}
    for range_ in payloads:
        pid = range_.tid & ~0xFFFFFF
        rank, size = range_.fields.get(_RANK), range_.fields.get(_RANKS)
        if (
            rank is not None
            and size is not None
            and 0 <= rank < size
            and size > ranks_.get(pid, (0, 0))[1]
        ):
            ranks_[pid] = (rank, size)
    return ranks_
