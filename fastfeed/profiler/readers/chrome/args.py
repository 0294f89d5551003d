"""Arguments of events: bytes as written, or a parsed dict if its keys have another order."""

from __future__ import annotations

import re
from typing import Any

from fastfeed.profiler.readers.chrome.lenient_json import loads

# the device, the stream, and the number of the launch, in the order of every Kineto
DEVICE_ARGS = re.compile(
    rb'("device"\s*:\s*\d{1,9}\s*,\s*(?:"context"\s*:\s*(?:\d+|"[^"\\]*")\s*,\s*)?"stream"\s*:\s*-?\d{1,9})\s*,'
    rb'\s*"correlation"\s*:\s*(\d{1,18})\b'
)
_CORR = re.compile(rb'"correlation(?:_id)?"\s*:\s*"?(\d{1,18})\b')
_BYTES = re.compile(rb'"bytes"\s*:\s*"?(\d{1,18})\b')
_ITEM = {  # bytes
    "byte": 1,
    "char": 1,
    "bool": 1,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
    "float": 4,
    "int": 4,
    "double": 8,
    "long": 8,
}
_INT64 = 2**63
STEP = "step_num: "  # begins the name of what JAX and TensorFlow call a step


def unquoted(value: Any) -> Any:
    """Numbers in quotes as numbers."""
    return (
        int(value)
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value.strip())
        else value
    )


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def printable(text: Any) -> str:
    """A text without lone surrogates, which JSON may have and no terminal takes."""
    return str(text).encode("utf-8", "replace").decode()


def number(value: Any, default: Any) -> Any:
    value = unquoted(value)
    if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return -1 if value in (2**32 - 1, 2**31 - 1) else value  # "none" in 32 bits
    return default


def parsed(args: Any) -> dict[str, Any]:
    if isinstance(args, bytes):
        try:
            args = loads(b"{%b}" % args)
        except ValueError:
            args = None
    return args if isinstance(args, dict) else {}


def correlation(args: Any) -> int:
    if args.__class__ is bytes:
        match = _CORR.search(args)
        return int(match[1]) if match else -1
    if not isinstance(args, dict):
        return -1
    return number(args.get("correlation", args.get("correlation_id")), -1)


def parse_size(args: Any) -> int:
    if args.__class__ is bytes:
        match = _BYTES.search(args)
        return int(match[1]) if match else -1
    return number(args.get("bytes"), -1) if isinstance(args, dict) else -1


def parse_copy(args: Any) -> tuple[int, int]:
    """(bytes, pageable) of a copy of JAX: `kind_src:pageable kind_dst:device size:4`."""
    if not isinstance(args, dict | bytes) or (
        isinstance(args, bytes) and b"memcpy_details" not in args
    ):
        return -1, -1
    text = str(parsed(args).get("memcpy_details", ""))
    size = re.search(r"\b(?:num_bytes|size):(\d{1,18})", text)
    return int(size[1]) if size else -1, 1 if "pageable" in text else 0 if "pinned" in text else -1


def step_name(name: Any, args: Any) -> Any:
    """The name of a step of StepTraceAnnotation, whose number is in its arguments."""
    may_have_step = isinstance(args, dict) or (isinstance(args, bytes) and b'"step_num"' in args)
    step = parsed(args).get("step_num") if may_have_step else None
    return name if step is None else f"{STEP}{_text(name)} {step}"


def collective(args: dict[str, Any]) -> tuple[str, int, int]:
    """(process group, sequence number, bytes) of a communication kernel."""
    group = args.get("Process Group Name")
    seq = number(args.get("Seq"), -1)
    count = max(number(args.get(f"{way} msg nelems"), -1) for way in ("In", "Out"))
    kind = str(args.get("dtype", "")).lower().removeprefix("c10::")
    size = 1 if kind.startswith("float8") else _ITEM.get(kind, 0)
    return str(group or ""), seq, count * size if count >= 0 and size else -1


def parse_launch(args: dict[str, Any], thread_key: tuple[Any, ...]) -> tuple[tuple[int, int], int]:
    """((device, stream), correlation) of arguments in any order, completed by the thread key."""
    device, stream = (number(args.get(key), None) for key in ("device", "stream"))
    if device is None:
        device = number(thread_key[0], 0)
    if stream is None:
        stream = number(re.sub(r"^\D*", "", str(thread_key[1])), -1)
    return (device, stream), number(args.get("correlation", args.get("correlation_id")), -1)
