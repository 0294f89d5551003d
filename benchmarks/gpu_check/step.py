"""A step's process: `python -m benchmarks.gpu_check.step kernel --out kernel.json --seconds 100`."""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.process import INTERRUPTED, read, write
from benchmarks.gpu_check.table import STEPS


@dataclass(slots=True)
class Context:
    """What a step is told; `note` writes its JSON at once."""

    name: str
    stand_in: bool  # on the processor, tiny
    seconds: float  # it should take
    work: Path  # folder for files; photographs are in photos/
    out: Path
    figures: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    until: float = 0.0  # time.perf_counter() at which it should be done

    def left(self) -> float:
        """Seconds."""
        return self.until - time.perf_counter()

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """In it there is this share of the time that is left; what it does not need is there again
        afterwards.
        """
        end = self.until
        self.until = time.perf_counter() + share * self.left()
        try:
            yield
        finally:
            self.until = end

    def interrupted(self, name: str) -> dict[str, Any]:
        """Rows of this figure that a call which was killed had already; empty where there are
        none.
        """
        rows = (read(self.out.with_suffix(INTERRUPTED)) or {}).get("figures", {}).get(name)
        return rows if isinstance(rows, dict) else {}

    def skips(self, what: str, seconds: float) -> bool:
        """There is no time for this any more; noted."""
        if (
            self.left() >= seconds or self.stand_in
        ):  # a stand-in is tiny, and its machine may be slow
            return False
        self.left_out.append(what)
        return True

    def note(self, name: str, value: Any) -> None:
        """Keep a figure."""
        self.figures[name] = value
        self.save("running")
        print(f"{name}: {value}", flush=True)

    def save(self, state: str, **more: Any) -> None:
        """Write what was found so far."""
        where = (
            "stand-in: the processor, tiny sizes; no figure of a GPU"
            if self.stand_in
            else "GPU machine"
        )
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        busy = round(sum(one.ru_utime + one.ru_stime for one in used), 1)
        told = {
            "cpu_seconds": busy,
            "step": self.name,
            "state": state,
            "where": where,
            "stand_in": self.stand_in,
            "figures": self.figures,
        }
        write(self.out, told | {"left_out": self.left_out} | more)

    def earlier(self, step: str) -> dict[str, Any]:
        """Figures of another step; empty where it has none."""
        return (read(self.out.with_name(f"{step}.json")) or {}).get("figures", {})

    def setting(self, part: float = 1.0) -> Any:
        """What parts of benchmarks/gpu_check are told; `part`: of the time that is left."""
        from benchmarks.gpu_check.parts import bare
        from benchmarks.gpu_check.parts.setting import NotRun, Setting

        if not (self.work / "photos").is_dir():
            raise NotRun(
                "there are no photographs: run the step `photos` first, or again if it was ended"
            )
        bare.fill()
        from fastfeed.distributed.cores import cores_for
        from fastfeed.distributed.world import World

        told = Setting(
            not self.stand_in, self.stand_in, cores_for(World(0, 1, 0, 1)), self.work, None
        )
        told.left_out = self.left_out
        told.sets = {
            path.name: path for path in sorted((self.work / "photos").iterdir()) if path.is_dir()
        }
        told.until = time.perf_counter() + part * self.left()
        return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="step", description=__doc__)
    parser.add_argument("name", choices=[step.name for step in STEPS])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    step = next(step for step in STEPS if step.name == options.name)
    context = Context(step.name, options.stand_in, options.seconds, options.work, options.out)
    context.until = time.perf_counter() + options.seconds
    context.save("running")
    try:
        importlib.import_module(f"benchmarks.gpu_check.steps.{step.module}").run(context)
    except Exception as error:
        from benchmarks.gpu_check.parts.setting import NotRun

        if isinstance(error, NotRun):
            context.save("not run", reason=str(error))
            return 0
        context.figures |= getattr(error, "figures", {})
        traceback.print_exc()
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        reason = f"{type(error).__name__}: {first}"[:500]
        kit = (  # the report is committed: no folders of that machine
            f"{Path(__file__).resolve().parents[2]}/"
        )
        context.save("failed", reason=reason, traceback=traceback.format_exc().replace(kit, ""))
        return 1
    if not context.figures:
        context.save("failed", reason=f"nothing was measured in {options.seconds:.0f} s")
        return 1
    context.save("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
