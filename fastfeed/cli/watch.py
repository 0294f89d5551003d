"""`fastfeed watch`: which running feeds keep their trainers waiting, now."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from dataclasses import replace
from typing import Annotated, cast

from rich.console import Console
from rich.live import Live

from fastfeed.cli.screen.help import argument, flag, option
from fastfeed.cli.screen.streams import report, say
from fastfeed.errors import ConfigError
from fastfeed.live.document import document
from fastfeed.live.folder import folders
from fastfeed.live.http.serve import Server, parse_address
from fastfeed.live.nvml import Gpus
from fastfeed.live.screen import screen
from fastfeed.live.stacks.watch import sampled_screen, watch_stacks
from fastfeed.live.watch import Monitor

Address = tuple[str, int]  # host and port
_ONCE_S = 2.0  # how long `--once` looks
_SAMPLED_S = 5  # how long a process without a feed is sampled


def watch(
    target: Annotated[
        str | None, argument("PID|FOLDER", "One process, or a folder of live pages.")
    ] = None,
    once: Annotated[bool, flag("Look for two seconds, print, and exit.", "--once")] = False,
    as_json: Annotated[
        bool, flag("Print JSON: one document, or a line per update.", "--json")
    ] = False,
    every: Annotated[
        float, option("S", "Seconds between updates.", "--every", min=0.2, max=86400)
    ] = 1.0,
    seconds: Annotated[
        int | None, option("S", "Sample PID's stack for S seconds.", "--seconds", min=1, max=86400)
    ] = None,
    prometheus: Annotated[
        str | None,
        option(":PORT", "Serve Prometheus metrics; :9400 binds to 127.0.0.1.", "--prometheus"),
    ] = None,
    web: Annotated[
        str | None, option("HOST:PORT", "Serve a page, as in 127.0.0.1:8080.", "--web")
    ] = None,
) -> None:
    """Show which running trainers wait for input, and why.

    Looks at the feeds of running processes, says what would help, and never disturbs a trainer. Of
    a PID without a feed, py-spy samples the stack.

    Examples:
        fastfeed watch                             # all feeds of this machine
        fastfeed watch 4711                        # one process: feeds, or its stack
        fastfeed watch --once --json               # one sample, for a script
        fastfeed watch --web 127.0.0.1:8080        # a page for the browser, too
    """
    if once and (prometheus or web):
        raise ConfigError(
            "--once ends at once, so it cannot serve; leave it out, or --prometheus and --web"
        )
    if math.isnan(every):
        raise ConfigError("--every must be a number of seconds, 0.2 or more, got nan")
    pid, places = _target(target)
    if seconds is not None and (pid is None or prometheus or web):
        raise ConfigError(
            "--seconds samples one process and ends; pass its PID, and no --prometheus or --web"
        )
    wanted = [(name, text) for name, text in (("--prometheus", prometheus), ("--web", web)) if text]
    addresses = [(name, parse_address(text, name)) for name, text in wanted]
    gpus = Gpus()
    servers = cast(dict[Address, Server], {})
    monitor = Monitor(places, pid, gpus)
    try:
        with report() as console:
            if pid is not None and (seconds is not None or not (wanted or monitor.look().rows)):
                _print_sampled(pid, seconds or _SAMPLED_S, gpus, console, as_json)
                return
            if once:
                _print_once(monitor, console, as_json)
                return
            notes = _serve(addresses, servers, is_needed=not (as_json or console.is_terminal))
            for note in notes:
                say(note)
            _show_until_interrupted(
                monitor, console, pid, as_json, every, list(servers.values()), notes
            )
    finally:
        for server in servers.values():
            server.close()
        gpus.close()


def _serve(
    addresses: list[tuple[str, Address]], servers: dict[Address, Server], is_needed: bool
) -> list[str]:
    """Begin; a sentence for each address.

    ConfigError if none can be had and the watch has no other output.
    """
    notes: list[str] = []
    for name, address in addresses:
        try:
            server = servers.get(address) or Server(*address, name)
        except ConfigError as error:
            notes.append(str(error))
            continue
        servers[address] = server
        path = "/metrics" if name == "--prometheus" else "/"
        notes.append(f"{server.url}{path}" + (f": {server.warning}" if server.warning else ""))
    if is_needed and addresses and not servers:
        raise ConfigError("; ".join(notes))
    return notes


def _print_once(monitor: Monitor, console: Console, as_json: bool) -> None:
    monitor.look()
    monitor.wait(_ONCE_S)
    view = monitor.look()
    if as_json:
        print(json.dumps(document(view), indent=2))
    else:
        console.print(screen(view, console.width, _is_ascii(console)))


def _print_sampled(pid: int, seconds: int, gpus: Gpus, console: Console, as_json: bool) -> None:
    process = watch_stacks(pid, seconds, gpus)
    if as_json:
        print(json.dumps(process.as_dict(), indent=2))
    else:
        console.print(sampled_screen(process))


def _show_until_interrupted(
    monitor: Monitor,
    console: Console,
    pid: int | None,
    as_json: bool,
    interval: float,
    servers: list[Server],
    notes: list[str],
) -> None:
    """Show views until Ctrl-C; a server without a terminal prints nothing more.

    `notes` are for the screen, which hides earlier lines.
    """
    live = None
    if console.is_terminal and not as_json:
        live = Live(console=console, screen=True, auto_refresh=False)
        live.start()
    try:
        while True:
            view = monitor.look()
            if pid is not None and not view.rows:
                view = replace(view, notes=(_no_feed_note(pid), *view.notes))
            for server in servers:
                server.view = view
            if as_json:
                print(json.dumps(document(view)), flush=True)
            elif live is not None:
                shown = replace(view, notes=(*view.notes, *notes))
                live.update(screen(shown, console.width, _is_ascii(console)), refresh=True)
            elif not servers:
                console.print(screen(view, console.width, _is_ascii(console)))
                if sys.stdout is not None:  # where it is closed
                    sys.stdout.flush()
            monitor.wait(interval)
    finally:
        if live is not None:
            live.stop()


def _is_ascii(console: Console) -> bool:
    return "utf" not in (console.encoding or "").lower()


def _target(target: str | None) -> tuple[int | None, list[str]]:
    """Parse PID or FOLDER into (pid or None, folders)."""
    if target is not None and not target.isdecimal():
        if not os.path.isdir(target):
            raise ConfigError(
                f"PID or FOLDER must be a process number or a folder of live pages, got {target!r}"
            )
        return None, [target]
    places = folders()
    if not places:
        raise ConfigError(
            "FASTFEED_LIVE is off here; unset it, or name the folder of the live pages",
            field="FASTFEED_LIVE",
        )
    if os.environ.get("FASTFEED_LIVE") is None and hasattr(os, "getuid") and os.getuid() == 0:
        places += _all_users(places)
    return None if target is None else int(target), places


def _all_users(places: list[str]) -> list[str]:
    """Root sees the feeds of all users."""
    others = []
    for parent in {os.path.dirname(place) for place in places}:
        with os.scandir(parent) as entries:
            own = [e for e in entries if re.fullmatch(r"fastfeed-\d+", e.name)]
            others += [e.path for e in own if e.is_dir(follow_symlinks=False)]
    return sorted(set(others) - set(places))


def _no_feed_note(pid: int) -> str:
    if not os.path.exists(f"/proc/{pid}"):
        return f"there is no process {pid}; `fastfeed watch` without a number shows all feeds"
    return (
        f"process {pid} has no feed that was iterated, or belongs to another user or container; "
        "`fastfeed watch` without a number shows all feeds"
    )
