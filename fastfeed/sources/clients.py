"""What is particular to single storage clients: how they are best set up, and what their errors mean."""

from __future__ import annotations

import asyncio
from typing import Any

from fastfeed.sources.fetch import Unread, Why

__all__ = ["explain", "settings"]

# by the name of the exception: the clients' packages may not be installed
_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}
_OURS = (TypeError, AttributeError, NotImplementedError, ValueError)  # the same again the next time


def settings(protocol: str, options: dict[str, Any], in_flight: int) -> dict[str, Any]:
    """fsspec's options with what suits many small reads; what the user gave comes first."""
    if protocol not in ("s3", "s3a"):
        return dict(options)
    config = {
        "max_pool_connections": 2 * in_flight,  # its default of 10 would be the limit; hedges come on top
        "retries": {"max_attempts": 0},
    }
    # an object read whole would else be asked for its size first
    return {"max_concurrency": 1, **options, "config_kwargs": config | options.get("config_kwargs", {})}


def explain(error: Exception) -> Why:
    """Reason and detail for the quarantine list, and whether another try may go better."""
    name, text = type(error).__name__, " ".join(str(error).split())[:300]
    status = getattr(error, "status", None) or getattr(error, "code", None)  # aiohttp's, gcsfs's
    if isinstance(error, FileNotFoundError) or status in (404, "404"):
        return Why(Unread("not_found"), False)
    if name in _CREDENTIALS:
        return Why(Unread("io_error", f"no credentials: {text}"), False)
    if isinstance(error, PermissionError) or status in (401, 403, "401", "403"):
        return Why(Unread("io_error", f"permission denied: {text}"), False)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)) or "Timeout" in name:
        return Why(Unread("timeout", text), True)
    again = not isinstance(error, _OURS)
    if isinstance(status, int):
        again = status >= 500 or status in (408, 429)
    return Why(Unread("io_error", f"{name}: {text}" if name != "OSError" else text), again)
