"""`fastfeed watch`: which running feeds keep their trainers waiting, now."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from fastfeed.cli.streams import report, say
from fastfeed.errors import ConfigError
from fastfeed.live.document import document
from fastfeed.live.nvml import Gpus
from fastfeed.live.screen import screen
from fastfeed.live.serve import Server, parse_address
from fastfeed.live.watch import Watch
from fastfeed.runtime.live_folder import folders

__all__ = ["watch"]

_ONCE_S = 2.0  # how long `--once` looks


def watch(
    target: Annotated[
        str | None, typer.Argument(metavar="PID|FOLDER", help="One process, or a folder of live pages.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look for two seconds, print, and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line per look.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.2, metavar="S", help="Seconds between looks, 0.2 or more.")
    ] = 1.0,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar=":PORT", help="Serve metrics; :9400 is on the loopback alone.")
    ] = None,
    web: Annotated[
        str | None, typer.Option("--web", metavar="HOST:PORT", help="Serve a page, as in 127.0.0.1:8080.")
    ] = None,
) -> None:
    """Show which running trainers wait for input, and why.

    Looks at the feeds of running processes, says what would help, and never disturbs a trainer.

    Examples:
        fastfeed watch                             # all feeds of this machine
        fastfeed watch 4711                        # those of one process
        fastfeed watch --once --json               # look once, for a script
        fastfeed watch --web 127.0.0.1:8080        # a page for the browser, too
    """
    if once and (prometheus or web):
        raise ConfigError("--once ends at once, so it cannot serve; leave it out, or --prometheus and --web")
    pid, places = _target(target)
    wanted = [(option, text) for option, text in (("--prometheus", prometheus), ("--web", web)) if text]
    addresses = [(*parse_address(text, option), option) for option, text in wanted]
    gpus, servers = Gpus(), []
    looks = Watch(places, pid, gpus)
    try:
        for address in dict.fromkeys(addresses):
            servers.append(Server(*address))
            path = "/metrics" if address[2] == "--prometheus" else "/"
            say(f"{servers[-1].url}{path}" + (f": {servers[-1].warning}" if servers[-1].warning else ""))
        with report() as console:
            if once:
                _print_once(looks, console, pid, as_json)
            else:
                _go_on(looks, console, as_json, every, servers)
    finally:
        for server in servers:
            server.close()
        gpus.close()


def _print_once(looks: Watch, console: Console, pid: int | None, as_json: bool) -> None:
    looks.look()
    looks.rest(_ONCE_S)
    view = looks.look()
    if pid is not None and not view.rows:
        raise ConfigError(_nothing(pid))
    if as_json:
        print(json.dumps(document(view), indent=2))
    else:
        console.print(screen(view, console.width, _is_ascii(console)))


def _go_on(looks: Watch, console: Console, as_json: bool, every: float, servers: list[Server]) -> None:
    """Until Ctrl-C. What serves prints nothing more where there is no terminal."""
    live = None
    if console.is_terminal and not as_json:
        live = Live(console=console, screen=True, auto_refresh=False)
        live.start()
    try:
        while True:
            view = looks.look()
            for server in servers:
                server.view = view
            if as_json:
                print(json.dumps(document(view)), flush=True)
            elif live is not None:
                live.update(screen(view, console.width, _is_ascii(console)), refresh=True)
            elif not servers:
                console.print(screen(view, console.width, _is_ascii(console)))
                sys.stdout.flush()
            looks.rest(every)
    finally:
        if live is not None:
            live.stop()


def _is_ascii(console: Console) -> bool:
    return "utf" not in (console.encoding or "").lower()


def _target(target: str | None) -> tuple[int | None, list[str]]:
    """(pid or None, folders)."""
    if target is not None and not target.isdecimal():
        if not os.path.isdir(target):
            raise ConfigError(f"PID or FOLDER must be a process number or a folder of live pages, got {target!r}")
        return None, [target]
    places = folders()
    if not places:
        raise ConfigError("FASTFEED_LIVE is off here; unset it, or name the folder of the live pages")
    if os.environ.get("FASTFEED_LIVE") is None and hasattr(os, "getuid") and os.getuid() == 0:
        places += _all_users(places)
    return None if target is None else int(target), places


def _all_users(places: list[str]) -> list[str]:
    """Root sees the feeds of all users."""
    others = []
    for parent in {os.path.dirname(place) for place in places}:
        with os.scandir(parent) as entries:
            others += [
                e.path for e in entries if e.name.startswith("fastfeed-") and e.name[9:].isdecimal() and e.is_dir()
            ]
    return sorted(set(others) - set(places))


def _nothing(pid: int) -> str:
    if not os.path.exists(f"/proc/{pid}"):
        return f"there is no process {pid}; `fastfeed watch` without a number shows all feeds"
    return (
        f"process {pid} has no feed that was iterated, or belongs to another user or container; "
        "`fastfeed watch` without a number shows all feeds"
    )
