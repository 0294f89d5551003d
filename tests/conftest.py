"""What every test relies on: no launcher in the environment, no thread left behind, data found or
else a skip.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import STRICT
from helpers.photos import BROKEN, broken, folder
from helpers.real_data import VARIABLE, real_data
from helpers.s3 import s3, s3_process  # noqa: F401  fixtures
from hypothesis import HealthCheck, settings

from fastfeed.decode.memory_limit import DECODING, DEFAULT_BYTES, limit_decoding
from fastfeed.profiler.readers.chrome import native_scan
from fastfeed.sources import ImageFolder

ROOT = Path(__file__).resolve().parents[1]
LEAK_S = 2.0  # threads of feeds that were just garbage collected may need this long to end
_LAUNCHERS = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_(RANK|SIZE|WORLD_SIZE)|MASTER_(ADDR|PORT)|TF_CONFIG|JAX_(PROCESS_ID|NUM_PROCESSES|"
    r"COORDINATOR_ADDRESS)|(TORCHELASTIC|HOROVOD|OMPI|MV2|PMI|PMIX|PALS|MPI|SLURM|SKYPILOT)_.*|SM_(HOSTS|CURRENT_HOST)|FASTFEED_TIMELINE)"
)

_NSYS = re.compile(r"/test_(runner|nsys|profile_command)[^/]*\.py$")
_FRAMEWORKS = re.compile(
    r"/(adapters/test_(keras_datasets|torch|torch_transform|prefetch_to_device|gpu_\w+|tf_transform"
    r"|views)|laws/test_(public_arguments|stated_memory|yields)|loaders/test_loaders"
    r"|ports/test_ports_(keras|torch)|project/test_serving|proof/test_(data|proof)_loaders"
    r"|sources/test_(mapped|split|tfrecord))\.py$"
)
_REPORTED: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # left behind by earlier tests
_FAILURES = pytest.StashKey[dict[tuple[str, str, int], list[BaseException]]]()

# the machines that run these are shared and slow at times: no example may fail for taking long
settings.register_profile(
    "fastfeed",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("quick", parent=settings.get_profile("fastfeed"), max_examples=20)


def pytest_configure(config: pytest.Config) -> None:
    """Fewer examples without slow tests; those of a test's own settings stay."""
    is_quick = "not slow" in (config.option.markexpr or "")
    settings.load_profile("quick" if is_quick else "fastfeed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is not looked for among 20,000 tests: neither while they are found nor whenever it is
    collected later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """A fixture of a module or of the session that has failed twice fails again at once.

    pytest-rerunfailures forgets the failure with every test that it repeats, and such a fixture may
    start a framework for a minute.
    """
    if fixturedef.scope not in ("module", "session"):
        return (yield)
    key = (request.node.nodeid, fixturedef.argname, getattr(request, "param_index", 0))
    failures = request.config.stash.setdefault(_FAILURES, {}).setdefault(key, [])
    if len(failures) == 2:
        failure = failures[-1].with_traceback(None)
        fixturedef.cached_result = (None, fixturedef.cache_key(request), (failure, None))
        raise failure
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as failure:
        failures.append(failure)
        raise


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What went wrong the first time in tests that passed when they were repeated."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first run of {report.nodeid}", "-")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-60:]))
        for name, text in report.sections:
            terminalreporter.write_line(f"{name}:\n" + "\n".join(text.splitlines()[-60:]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers get whole files, as modules have fixtures; examples, which are slow and have none,
    one at a time. One worker gets all simulated traces (each is analyzed once per process), one all
    that run Nsight Systems, of which two at a time wait for each other, and one the tests
    that import frameworks themselves, which takes TensorFlow seven seconds.

    Not by marks: pytest-xdist 3.8 does not see them under pytest 9.2, and `--dist loadgroup` then
    splits files.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if path.endswith("test_examples.py"):
                return nodeid
            if _FRAMEWORKS.search(path):
                return "frameworks"
            return "nsys" if _NSYS.search(path) else "simulated" if "/simulated/" in path else path

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests mean the same under torchrun, in a Slurm job, and at a desk; indexes of remote shards and
    live pages, which `fastfeed watch` shows, go to folders of this run.

    What JAX compiles is kept for the processes of all workers, many of which compile the same. The
    workers keep all cores busy: more threads of OpenMP, as PyTorch's, would wait for each other.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(run_folder(tmp_path_factory) / "jax"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        for name in list(os.environ):
            if _LAUNCHERS.fullmatch(name):
                patch.delenv(name)
        patch.setenv("FASTFEED_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("FASTFEED_LIVE", str(tmp_path_factory.getbasetemp() / "live"))
        yield


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """Folder of this run, the same in all workers of pytest-xdist."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No limit of memory, no change of the log, which would hide lines, and no thread of fastfeed's.

    One fixture, as each costs every one of the tests.
    """
    log = logging.getLogger("fastfeed")
    before = (log.level, log.propagate, log.disabled, log.handlers[:])
    yield
    if DECODING.bytes != DEFAULT_BYTES // 2:
        limit_decoding(DEFAULT_BYTES)  # `Feed(memory=...)` changes that of the process
    after = (log.level, log.propagate, log.disabled, log.handlers[:])
    if after != before:
        log.setLevel(before[0])
        log.propagate, log.disabled, log.handlers[:] = before[1:]
    left = _left_threads()
    assert after == before, f"the logger of fastfeed was left changed: {after}, it was {before}"
    assert not left, f"threads left behind: {', '.join(left)}"


def _left_threads() -> list[str]:
    """Names of threads of fastfeed's that do not end, each reported once: a feed in the traceback of a
    test that failed would fail all tests after it, two seconds each.
    """
    deadline = time.monotonic() + LEAK_S
    while _ours() and time.monotonic() < deadline:
        gc.collect()
        for thread in _ours():
            thread.join(0.05)
    left = _ours()
    _REPORTED.update(left)
    return [thread.name for thread in left]


def _ours() -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("fastfeed") and thread not in _REPORTED
    ]


@pytest.fixture(scope="session")
def data() -> Path:
    """Real files, which are not part of this repository."""
    folder = real_data()
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}; set {VARIABLE} to the folder that holds it")
    return folder


@pytest.fixture(params=["native", "python"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Readers of traces with the native extension, where it is built, and without it."""
    if request.param == "python":
        monkeypatch.setattr(native_scan, "extension", lambda: None)
    elif native_scan.extension() is None:
        pytest.skip("the native extension is not built")
    return request.param


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """A new seed in every run, for slow tests only.

    A failure shows it; FASTFEED_TEST_SEED repeats it.
    """
    assert request.node.get_closest_marker("slow"), "only slow tests may differ from run to run"
    seed = int(os.environ.get("FASTFEED_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"FASTFEED_TEST_SEED={seed}")
    return seed


Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def python() -> Python:
    """`python(code, *args, RANK="0")` runs a program: arguments in sys.argv, keywords in its
    environment.
    """

    def run(code: str, *args: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *STRICT, "-c", code, *map(str, args)],
            env=environment(**environ),
            capture_output=True,
            text=True,
            timeout=60,  # ends a hang; nothing here takes that long
            check=False,
        )

    return run


def environment(**more: str) -> dict[str, str]:
    """This process's, with the package under test and `helpers` importable."""
    paths = [str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | more


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    return ImageFolder(folder(tmp_path_factory.mktemp("photos"), {"a": 11, "b": 9, "c": 10}))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFolder, dict[int, str]]:
    """80 files, 5 % of them broken: the source, and id -> reason."""
    root = folder(tmp_path_factory.mktemp("damaged"), {"a": 40, "b": 40})
    source = ImageFolder(root)
    bad = dict(zip((0, 17, 41, 79), BROKEN, strict=True))
    for id, reason in bad.items():
        source.path(id).write_bytes(broken(reason))
    return source, bad
