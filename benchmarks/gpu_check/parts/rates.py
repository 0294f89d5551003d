"""1. Images per second and processor time per image: ours in every way, next to DALI tuned by hand.

Everybody is measured once; then the best of each kind run in turn, forth and back, and only those
rounds give ratios.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.contestants import Ours, Rate, Rival, batch_for
from benchmarks.gpu_check.parts.setting import Setting, Wrong
from fastfeed.backends.decode_share import measurements_file, read_measured, save_measured
from fastfeed.backends.options import GpuDecode

LOADS = (0.0, 0.65, 0.9, 1.0)  # of the hardware engine
THREADS = (16, 8, 4)
ROUNDS = 2

Make = Callable[[], Any]


def run(setting: Setting) -> dict[str, Any]:
    """Figures by set; what was learned of the first is kept for this machine."""
    real, figures = measurements_file(), {}
    before = os.environ.get("FASTFEED_CACHE")
    end, most = setting.until, len(setting.sets)
    try:
        for number, (name, folder) in enumerate(setting.sets.items()):
            setting.until = end - setting.left() * (most - 1 - number) / (most - number)
            # each set has a share of its own
            os.environ["FASTFEED_CACHE"] = str(setting.folder / f"kept-{name}")
            figures[name] = _Set(setting, name, folder).figures()
            setting.until = end
            if number == 0 and setting.gpu:
                save_measured(real, read_measured(measurements_file()))
                setting.say(f"kept in {real}")
    finally:
        if before is None:
            del os.environ["FASTFEED_CACHE"]
        else:
            os.environ["FASTFEED_CACHE"] = before
    wrong = [
        f"{name}: {who}: {why}" for name, of in figures.items() for who, why in of["errors"].items()
    ]
    if wrong:
        raise Wrong(wrong, figures)
    return figures


class _Set:
    """The contest on one set of photographs."""

    def __init__(self, setting: Setting, name: str, folder: Path) -> None:
        self._setting, self._name, self._folder = setting, name, folder
        files = sum(p.suffix.lower() in (".jpg", ".jpeg") for p in folder.rglob("*"))
        self._batch = batch_for(setting, files, name == "stock")
        self._seconds = 0.05 if setting.quick else min(1.5, setting.left() / 60)
        self._rounds = 1 if setting.quick else ROUNDS
        self._rates: dict[str, Rate] = {}
        self._errors: dict[str, str] = {}
        self._makes: dict[str, Make] = {}
        self._decodes: dict[str, Any] = {"cpu kernel": "cpu"}
        self._shares: dict[str, float] = {}

    def figures(self) -> dict[str, Any]:
        """The CPU and hybrid first; where the load is not known, it is found in between."""
        loads = list(LOADS if self._setting.gpu else LOADS[1:2])
        known = self._setting.learned.get("hw_load")
        self._ours("cpu kernel", "cpu")
        if known is None:
            best = self._by_load(loads)
            load = self._decodes[best].hw_load if best else 0.65
        else:
            load = float(known)
            loads = [load]
        save_measured(measurements_file(), {"hw_load": load})  # the hybrid ones read it
        self._ours("hybrid, dali", GpuDecode(cpu_share=None))
        # the hardware engine and the native extension alone, without DALI's own decoding, which
        # takes longer than the native extension's
        self._ours("hybrid, dali, hw load 1", GpuDecode(hw_load=1.0, cpu_share=None))
        most = min(THREADS[0], self._setting.cores)
        self._rival(most, load)  # the likely one first, in case time runs out
        if known is not None:
            self._by_load(loads)
        if self._setting.gpu:
            self._ours("nvjpeg", GpuDecode(engine="nvjpeg"))
            self._ours("hybrid, nvjpeg", GpuDecode(engine="nvjpeg", cpu_share=None))
        for other in loads:
            if other != load:
                self._rival(most, other)
        rival = self._best("DALI, ")
        load = float(rival.rsplit(" ", 1)[1]) if rival else load
        for threads in THREADS[1:] if self._setting.gpu else ():
            if threads < most:
                self._rival(threads, load)
        finals, ratio = self._finals()
        self._learn(finals)
        return {
            "batch": self._batch,
            "singly": {name: rate._asdict() for name, rate in self._rates.items()},
            "finals": finals,
            "hybrid / best of cpu kernel and DALI": ratio,
            "shares": self._shares,
            "errors": self._errors,
        }

    def _by_load(self, loads: list[float]) -> str:
        """The fastest."""
        for load in loads:
            self._ours(f"dali, hw load {load:g}", GpuDecode(hw_load=load))
        return self._best("dali, ")

    def _ours(self, name: str, decode: Any) -> None:
        self._decodes[name] = decode
        self._enter(name, lambda: Ours(self._setting, self._folder, decode, self._batch))

    def _rival(self, threads: int, load: float) -> None:
        name = f"DALI, {threads} threads, hw load {load:g}"
        self._enter(name, lambda: Rival(self._setting, self._folder, threads, load, self._batch))

    def _enter(self, name: str, make: Make) -> None:
        """Measure one alone."""
        what = f"rates, {self._name}, {name}"
        finals = 5 * self._seconds * (self._rounds + 1.5)  # for these, time is kept
        if self._setting.skips(what, finals + 4 * self._seconds):
            return
        self._makes[name] = make
        try:
            one = make()
            try:
                one.warm(self._seconds / 2)
                self._rates[name] = one.run(self._seconds)
                if name.startswith("hybrid"):
                    self._shares[name] = one.share.value
            finally:
                one.close()
        except Exception as error:  # the others continue; the part is not ok
            self._errors[name] = f"{type(error).__name__}: {error}"[:500]
            self._setting.say(f"{self._name}: {name}: {self._errors[name]}")
            return
        rate = self._rates[name]
        share = f", share {self._shares[name]:.0%}" if name in self._shares else ""
        self._setting.say(
            f"{self._name}: {name}: {rate.images_per_second:,.0f} images/s, {rate.cpu_ms:.2f}"
            f" cpu-ms/image{share}"
        )

    def _best(self, start: str) -> str:
        """The fastest whose name begins so; empty where none was measured."""
        among = [name for name in self._rates if name.startswith(start)]
        return max(among, key=lambda name: self._rates[name].images_per_second, default="")

    def _finals(self) -> tuple[dict[str, Any], float | None]:
        """The best of each kind, all built, in turn: medians, and the ratio within a round."""
        kinds = ("cpu kernel", "dali, ", "nvjpeg", "hybrid, ", "DALI, ")
        names = [name for name in map(self._best, kinds) if name]
        if self._setting.skips(
            f"rates, {self._name}, finals", len(names) * self._seconds * (self._rounds + 1.5)
        ):
            return {}, None
        rounds: dict[str, list[Rate]] = {name: [] for name in names}
        built: dict[str, Any] = {}
        try:
            for name in names:
                built[name] = self._makes[name]()
                built[name].warm(0.0)
            for k in range(self._rounds):
                for name in names if k % 2 else names[::-1]:
                    rounds[name].append(built[name].run(self._seconds))
        except Exception as error:
            self._errors["finals"] = f"{type(error).__name__}: {error}"[:500]
            return {}, None
        finally:
            for one in built.values():
                one.close()
        speed = {name: [rate.images_per_second for rate in rates] for name, rates in rounds.items()}
        hybrid, kernel, rival = (
            self._best("hybrid, "),
            self._best("cpu kernel"),
            self._best("DALI, "),
        )
        ratio = None
        if hybrid and kernel and rival:
            both = zip(speed[hybrid], speed[kernel], speed[rival], strict=True)
            ratio = round(statistics.median(h / max(k, r) for h, k, r in both), 3)
        finals = {
            name: {
                "images_per_second": round(statistics.median(speed[name]), 1),
                "spread": [min(speed[name]), max(speed[name])],
                "cpu_ms": round(statistics.median(rate.cpu_ms for rate in rates), 3),
            }
            for name, rates in rounds.items()
        }
        for name, found in finals.items():
            self._setting.say(f"{self._name}, finals: {name}: {found}")
        return finals, ratio

    def _learn(self, finals: dict[str, Any]) -> None:
        """The fastest of either side on the first set, for the next parts."""
        speed = {n: f["images_per_second"] for n, f in finals.items()}
        speed = speed or {n: rate.images_per_second for n, rate in self._rates.items()}
        own = [name for name in speed if name in self._decodes]
        if own and "decode" not in self._setting.learned:
            best = max(own, key=speed.__getitem__)
            decode = self._decodes[best]
            if best in self._shares:
                load = decode.hw_load
                if load is None and decode.engine != "nvjpeg":  # which has none
                    load = read_measured(measurements_file()).get("hw_load")
                decode = GpuDecode(decode.engine, load, cpu_share=self._shares[best])
            self._setting.learned["decode"] = decode
        rival = self._best("DALI, ")
        if rival and "rival" not in self._setting.learned:
            parts = rival.split()
            self._setting.learned["rival"] = (int(parts[1]), float(parts[-1]))
