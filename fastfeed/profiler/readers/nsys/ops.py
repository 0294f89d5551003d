"""The device side of an export: kernels, copies, memsets, whole graphs, waits of streams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastfeed.profiler.model.columns import factorize, pick, unique_values
from fastfeed.profiler.model.kernel_names import kernel_kind
from fastfeed.profiler.model.trace import Kind, Strings
from fastfeed.profiler.readers.nsys.database import ColumnMap, NsysDatabase
from fastfeed.profiler.readers.nsys.identity import to_global_pid

NAME = "name"  # in raw rows: indexes into Strings
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")

# ENUM_CUDA_MEMCPY_OPER, the same in all ages: what it is for us, and how it is called
_COPIES = {
    1: (Kind.H2D, "Memcpy HtoD"),
    2: (Kind.D2H, "Memcpy DtoH"),
    3: (Kind.H2D, "Memcpy HtoA"),
    4: (Kind.D2H, "Memcpy AtoH"),
    5: (Kind.D2D, "Memcpy AtoA"),
    6: (Kind.D2D, "Memcpy AtoD"),
    7: (Kind.D2D, "Memcpy DtoA"),
    8: (Kind.D2D, "Memcpy DtoD"),
    9: (Kind.OTHER, "Memcpy HtoH"),
    10: (Kind.P2P, "Memcpy PtoP"),
    11: (Kind.OTHER, "Unified Memory HtoD"),
    12: (Kind.OTHER, "Unified Memory DtoH"),
    13: (Kind.OTHER, "Unified Memory DtoD"),
}
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
# ENUM_CUDA_MEM_KIND
_PAGEABLE = 0
_PINNED = 1


def raw_ops(db: NsysDatabase, names: Strings) -> ColumnMap:
    """All device work: the columns of Ops, but deviceId and globalPid as the file has them."""
    tables = {"KERNEL": _kernels, "MEMCPY": _copies, "MEMSET": _memsets, "GRAPH_TRACE": _graphs}
    return concatenate([read(db, _CUPTI + table, names) for table, read in tables.items()])


def concatenate(parts: list[ColumnMap]) -> ColumnMap:
    """The rows of all parts."""
    non_empty = [part for part in parts if len(part["start"])] or parts[:1]
    if len(non_empty) == 1:
        return non_empty[0]
    return {key: np.concatenate([part[key] for part in non_empty]) for key in non_empty[0]}


def name_indexes(
    db: NsysDatabase,
    ids: np.ndarray,
    names: Strings,
    text: Callable[[str], str] = str,
    other: str = "",
) -> np.ndarray:
    """StringIds to indexes of `names`, through each distinct id once.

    What has no text is called by `other`.
    """
    if not len(ids):
        return np.empty(0, np.int32)
    values, number = factorize(ids)
    texts = db.strings(values)
    indexes = names.many(
        text(texts[value]) if value in texts else other.format(value) for value in values.tolist()
    )
    return indexes[number]


def _op(rows: ColumnMap, name: np.ndarray, kind: np.ndarray | int, **more: np.ndarray) -> ColumnMap:
    count = len(rows["start"])
    none = np.full(count, -1, np.int64)
    return {
        **{key: rows[key] for key in _COMMON},
        NAME: name.astype(np.int32, copy=False),
        "kind": np.broadcast_to(np.asarray(kind, np.uint8), count),
        "bytes": more.get("bytes", none),
        "pageable": more.get("pageable", np.full(count, -1, np.int8)),
    }


def _kernels(db: NsysDatabase, table: str, names: Strings) -> ColumnMap:
    # the full C++ name first: all of CUTLASS is "Kernel" by its short one
    columns = [name for name in _KERNEL_NAMES if db.has(table, name)]
    column = columns[0] if columns else ""
    rows = db.columns(table, [*_COMMON, *columns[:1]])
    ids = rows[column] if column else np.full(len(rows["start"]), -1, np.int64)
    name = name_indexes(db, ids, names, other="kernel {}")
    used = unique_values(name)
    kinds = np.zeros(len(names.all) + 1, np.uint8)
    kinds[used] = [kernel_kind(names.all[index]) for index in used.tolist()]
    return _op(rows, name, kinds[name])


def _copies(db: NsysDatabase, table: str, names: Strings) -> ColumnMap:
    extra = ("copyKind", "srcKind", "dstKind", "bytes", "srcDeviceId", "dstDeviceId")
    rows = db.columns(table, [*_COMMON, *extra])
    direction = rows["copyKind"]
    kinds = np.full(257, Kind.OTHER, np.uint8)
    labels = np.full(257, names["Memcpy"] if len(direction) else -1, np.int32)
    for number in unique_values(direction).tolist():
        if number in _COPIES:
            kinds[number], labels[number] = _COPIES[number][0], names[_COPIES[number][1]]
    direction = np.where((direction >= 0) & (direction < 256), direction, 256)
    kind = kinds[direction]
    name = labels[direction]
    known_devices = (kind == Kind.D2D) & (rows["srcDeviceId"] >= 0) & (rows["dstDeviceId"] >= 0)
    kind = np.where(
        known_devices & (rows["srcDeviceId"] != rows["dstDeviceId"]), np.uint8(Kind.P2P), kind
    )
    host = np.where(
        kind == Kind.H2D, rows["srcKind"], np.where(kind == Kind.D2H, rows["dstKind"], -1)
    )
    pageable = np.select([host == _PAGEABLE, host == _PINNED], [1, 0], -1).astype(np.int8)
    return _op(rows, name, kind, bytes=rows["bytes"], pageable=pageable)


def _memsets(db: NsysDatabase, table: str, names: Strings) -> ColumnMap:
    rows = db.columns(table, [*_COMMON, "bytes"])
    name = np.full(len(rows["start"]), names["Memset"] if len(rows["start"]) else -1)
    return _op(rows, name, Kind.MEMSET, bytes=rows["bytes"])


def _graphs(db: NsysDatabase, table: str, names: Strings) -> ColumnMap:
    """Under --cuda-graph-trace=graph a launched graph is one row, and its kernels have none."""
    rows = db.columns(table, [*_COMMON, "graphId"])
    graphs, number = factorize(rows["graphId"])
    called = names.many(
        "CUDA graph" if graph < 0 else f"CUDA graph {graph}" for graph in graphs.tolist()
    )
    return _op(rows, called[number], Kind.GRAPH)


def raw_waits(db: NsysDatabase, calls: ColumnMap, names: Strings) -> ColumnMap:
    """Waits of streams for events: corr, globalPid, stream, on_stream, on_corr.

    `syncType` was numbered differently by different versions, so the API call behind a row says
    what it is. Handles of events are used again and again: `eventSyncId` tells which recording is
    meant, else the latest before the wait.
    """
    sync = _CUPTI + "SYNCHRONIZATION"
    event = _CUPTI + "CUDA_EVENT"
    columns = ("correlationId", "globalPid", "streamId", "eventId", "eventSyncId")
    rows = db.columns(sync, columns) if db.has(sync, "correlationId", "streamId") else {}
    if not rows:
        return {
            key: np.empty(0, np.int64)
            for key in ("corr", "globalPid", "stream", "on_stream", "on_corr")
        }
    waiting = np.array(
        [index for index, name in enumerate(names.all) if "StreamWaitEvent" in name], np.int64
    )
    is_wait = np.isin(calls[NAME], waiting)
    pids = np.unique(np.concatenate([rows["globalPid"], to_global_pid(calls["globalTid"])]))
    waiting_calls = _within(
        pids, to_global_pid(calls["globalTid"][is_wait]), calls["correlationId"][is_wait]
    )
    is_stream_wait = np.isin(_within(pids, rows["globalPid"], rows["correlationId"]), waiting_calls)
    rows = {key: column[is_stream_wait] for key, column in rows.items()}
    records = db.columns(event, columns)
    at = _by_sync(rows, records)
    at = np.where(at >= 0, at, _latest(rows, records))
    return {
        "corr": rows["correlationId"],
        "globalPid": rows["globalPid"],
        "stream": rows["streamId"],
        "on_stream": pick(records["streamId"], at, -1),
        "on_corr": pick(records["correlationId"], at, -1),
    }


def _within(pids: np.ndarray, pid: np.ndarray, corr: np.ndarray) -> np.ndarray:
    """One number for (process, correlation id): ids are unique within their process only."""
    return (np.searchsorted(pids, pid) << 40) + corr


def _by_sync(rows: ColumnMap, records: ColumnMap) -> np.ndarray:
    """The record with the wait's own id, -1 for none."""
    unset = (0, -1, 0xFFFFFFFF)
    has_id = np.flatnonzero(~np.isin(records["eventSyncId"], unset))
    wanted_codes, record_codes = _pair_codes(rows, records, "eventSyncId")
    order = has_id[np.argsort(record_codes[has_id], kind="stable")]
    return _last_up_to(record_codes[order], wanted_codes, order, wanted_codes)


def _latest(rows: ColumnMap, records: ColumnMap) -> np.ndarray:
    """The record of the same event with the greatest correlation id below the wait's."""
    wanted_codes, record_codes = _pair_codes(rows, records, "eventId")
    order = np.lexsort((records["correlationId"], record_codes))
    keys = (record_codes[order] << 33) + records["correlationId"][order]
    return _last_up_to(
        keys, (wanted_codes << 33) + rows["correlationId"] - 1, order, wanted_codes << 33
    )


def _pair_codes(rows: ColumnMap, records: ColumnMap, key: str) -> tuple[np.ndarray, np.ndarray]:
    """(process, key) of both tables as small numbers, equal where both are."""
    code = np.zeros(len(rows[key]) + len(records[key]), np.int64)
    for name in ("globalPid", key):
        values, number = np.unique(np.concatenate([rows[name], records[name]]), return_inverse=True)
        code = code * len(values) + number
    return code[: len(rows[key])], code[len(rows[key]) :]


def _last_up_to(
    keys: np.ndarray, upto: np.ndarray, places: np.ndarray, lower: np.ndarray
) -> np.ndarray:
    """Place of the last of the sorted keys in [lower, upto], for each pair; -1 if none."""
    if not len(keys):
        return np.full(len(upto), -1, np.int64)
    at = np.searchsorted(keys, upto, side="right") - 1
    is_valid = (at >= 0) & (keys[np.maximum(at, 0)] >= lower)
    return np.where(is_valid, places[np.maximum(at, 0)], -1)
