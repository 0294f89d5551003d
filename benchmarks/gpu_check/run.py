"""The steps on a machine with a GPU: each in its own process, none twice, the call over before ten
minutes.

Run it again until it says that every step has a result: it resumes where it stopped.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import look as machine
from benchmarks.gpu_check import process, report
from benchmarks.gpu_check.kit import parts, unpack
from benchmarks.gpu_check.table import STEPS, Step

KIT = Path(__file__).resolve().parents[2]
_FIRST = ("inventory", "photos")  # of which others need the results
_LEFT = 10  # seconds at the end of a call, for the report


def main(arguments: list[str] | None = None) -> int:
    started = time.monotonic()
    options = _options(arguments)
    options.results, options.work = options.results.resolve(), options.work.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.report:
        return _reported(options, [])
    sentences: list[str] = []

    def say(text: str) -> None:
        sentences.append(text)
        print(text, flush=True)

    try:
        manifest = parts.load(KIT)
    except ValueError as error:
        say(str(error))
        manifest = None
    environ, lost = _ready(options, manifest, say, started)
    here = machine.look(environ, options.stand_in, options.results, (manifest or {}).get("gpu", ""))
    for sentence in here.sentences:
        say(sentence)
    wanted = _wanted(options)
    first = [step for step in wanted if step.name in _FIRST or options.at_once == 1]

    def one(step: Step) -> None:
        _one(step, options, environ, here, lost, options.budget - (time.monotonic() - started))

    for step in first:
        one(step)
    rest = [step for step in wanted if step not in first]
    rest.sort(key=lambda step: -step.seconds)  # stand-ins: no long one at the end
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(one, rest))
    return _reported(options, sentences)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--budget", type=float, default=570, help="seconds that this call may take in all"
    )
    parser.add_argument(
        "--pace", type=float, default=1, help="0.5: half of its time for every step"
    )
    parser.add_argument(
        "--limit", type=float, default=540, help="seconds after which a step is ended"
    )
    parser.add_argument(
        "--from",
        dest="first",
        choices=names,
        metavar="STEP",
        help="this step and those after it, again",
    )
    parser.add_argument("--only", help=f"these alone, again: {','.join(names)}")
    parser.add_argument(
        "--report", action="store_true", help="run nothing; write the page and the JSON"
    )
    parser.add_argument("--stand-in", action="store_true", help="on the processor, tiny sizes")
    # stand-ins: nothing is measured
    parser.add_argument("--at-once", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--copy-to", type=Path, help="also put the page and the JSON there")
    parser.add_argument("--results", type=Path, default=KIT / "results", help="folder of results")
    parser.add_argument(
        "--work", type=Path, default=KIT / "work", help="folder for packages and photographs, 4 GB"
    )
    options = parser.parse_args(arguments)
    unknown = set((options.only or names[0]).split(",")) - set(names)
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def _ready(
    options: argparse.Namespace, manifest: dict[str, Any] | None, say: Any, started: float
) -> tuple[dict[str, str], dict[str, str]]:
    """(environment of the steps, packages that did not arrive: name -> sentence).

    Says what is wrong, once each.
    """
    site = options.work / "site"
    environ = unpack.paths(KIT, site, options.work, options.stand_in)
    if manifest is None:
        return environ, {}
    for name, hashed in manifest["code"].items():
        if not (KIT / name).is_file() or parts.sha256(KIT / name) != hashed:
            say(f"{name} is not as it was packed: copy it again, unless you changed it.")
    faults = parts.arrived(KIT, manifest)
    files, lost = parts.extract(KIT, manifest, faults, options.work / "files")
    needed = set(lost.values())
    for fault in faults.values():
        if fault in needed:  # what lies in the part was not unpacked by an earlier call
            say(fault)
    for sentence in unpack.wheels(files, site):
        say(sentence)
    own = "{}.{}".format(*sys.version_info[:2])
    if own != manifest["python"]:
        say(
            f"The kit is for Python {manifest['python']}, this is {own}: packages with compiled"
            " code may not load."
        )
    source = next((path for path in files if path.name == unpack.SOURCE), None)
    if (
        source is not None
        and not options.stand_in
        and (reason := unpack.kernel_loads(environ, options.results))
    ):
        say(f"fastfeed's wheel has no kernel for this machine ({reason}): building the source.")
        if wrong := unpack.build(
            source, site, options.work, options.budget - (time.monotonic() - started) - _LEFT
        ):
            say(wrong)
        elif reason := unpack.kernel_loads(environ, options.results):
            say(
                f"It was built without its kernel ({reason}): Pillow decodes, so rates of the"
                " kernel are Pillow's."
            )
    return environ, lost


def _wanted(options: argparse.Namespace) -> list[Step]:
    """The steps of this call; what is asked for by name loses its result."""
    again = (options.only or "").split(",") if options.only else []
    chosen = [step for step in STEPS if not again or step.name in again]
    if options.first:
        names = [step.name for step in STEPS]
        chosen = [step for step in chosen if names.index(step.name) >= names.index(options.first)]
        again = [step.name for step in chosen]
    for name in again:
        for suffix in (".json", process.INTERRUPTED):
            (options.results / f"{name}{suffix}").unlink(missing_ok=True)
    return chosen


def _one(
    step: Step,
    options: argparse.Namespace,
    environ: dict[str, str],
    here: machine.Machine,
    lost: dict[str, str],
    left: float,
) -> None:
    result = options.results / f"{step.name}.json"
    earlier = process.read(result)
    if earlier and earlier.get("state") in process.FINAL and not _unfinished(options, step):
        print(f"[{step.name}] {earlier['state']}, from an earlier call", flush=True)
        return
    least = 3 if options.stand_in else options.pace * step.least
    reason = here.lacks(step.needs, options.stand_in)
    if reason and lost:
        reason += f"; {sorted(set(lost.values()))[0]}"
    if not reason and left - _LEFT < least:
        reason = (
            f"{max(0, left):.0f} s are left of this call, it needs {least:.0f}: run the same"
            " command again"
        )
    if reason:
        print(f"[{step.name}] not run: {reason}", flush=True)
        process.write(
            result, {"step": step.name, "state": "not run", "reason": reason, "asks": step.asks}
        )
        return
    limit = min(options.limit, step.limit, left - _LEFT)
    seconds = min(60 if options.stand_in else options.pace * step.seconds, 0.8 * limit)
    print(f"[{step.name}] {step.asks}; up to {seconds:.0f} s", flush=True)
    arguments = [
        "--work",
        str(options.work),
        "--seconds",
        f"{seconds:.1f}",
        *["--stand-in"] * options.stand_in,
    ]
    log = options.results / f"{step.name}.log"
    (options.results / f"{step.name}.started").touch()
    found = process.run(step.name, arguments, environ, result, limit, log)
    process.write(result, found | {"asks": step.asks})
    (options.results / f"{step.name}.started").unlink()
    reason = f": {found['reason']}" if "reason" in found else ""
    print(f"[{step.name}] {found['state']} after {found['seconds']:.0f} s{reason}", flush=True)


def _unfinished(options: argparse.Namespace, step: Step) -> bool:
    """Whether the call that ran this step was killed while it ran."""
    return (options.results / f"{step.name}.started").is_file()


def _reported(options: argparse.Namespace, sentences: list[str]) -> int:
    """Write the page and the JSON; 0 if every step has a result, 2 if some wait for another call, 1
    if one failed.
    """
    found = {step.name: process.read(options.results / f"{step.name}.json") for step in STEPS}
    told = report.collected(found, sentences, parts.MANIFEST, KIT)
    process.write(options.results / "gpu.json", told)
    (options.results / "gpu.md").write_text(report.page(told), "utf-8")
    print(report.summary(told), flush=True)
    if options.copy_to:
        options.copy_to.mkdir(parents=True, exist_ok=True)
        for name in ("gpu.json", "gpu.md"):
            shutil.copy(options.results / name, options.copy_to)
    states = [(one or {}).get("state", "not run") for one in found.values()]
    waiting = states.count("not run")
    print(
        f"{len(states) - waiting} of {len(states)} steps have a result;"
        f" {options.results / 'gpu.md'}",
        flush=True,
    )
    return 1 if {"failed", "stopped"} & set(states) else 2 if waiting else 0
