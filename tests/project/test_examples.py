"""Every example runs as its README says, on small data, and learns.

Nightly: its other launchers and backends, and those that show what other tests run in CI.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from conftest import ROOT, environment, run_folder
from helpers.needs import require

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
LIMIT_S = 180  # ends a hang
HELPERS = {"made.py", "horovod/hvd.py"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
ACCELERATE = (
    "-m",
    "accelerate.commands.launch",
    "--cpu",
    "--num_processes",
    "2",
    "--num_machines",
    "1",
)
ACCELERATE += ("--mixed_precision", "no", "--dynamo_backend", "no")
PROVE = (
    "-c",
    (
        "import sys; sys.argv[1:1] = ['prove', '--seconds', '1', '--', sys.executable]; "
        "from fastfeed.cli import main; main()"
    ),
)
MPIRUN = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2")


@dataclass(frozen=True)
class Run:
    script: str
    needs: tuple[str, ...]  # packages
    args: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()  # arguments of Python before the script
    environ: tuple[tuple[str, str], ...] = ()
    says: tuple[str, ...] = ()  # what the output also holds
    mpirun: bool = False
    nightly: bool = False  # another launcher or backend, or CI runs the same in other tests

    def __str__(self) -> str:
        how = ["mpirun"] * self.mpirun + [value for _, value in self.environ]
        return "-".join([self.script, *how])


PHOTOS = ("--data", "{photos}")
SMALL = (*PHOTOS, "--size", "32")  # a quarter of the arithmetic
# NPROC: XLA's threads, by default one per core. A device that waits in an all-reduce holds one, and
# on two cores the device that it waits for may find none free: XLA ends the process after 40 s.
TWO_DEVICES = (("XLA_FLAGS", "--xla_force_host_platform_device_count=2"), ("NPROC", "8"))
# At the end of a process, rarely: DistributedDataParallel keeps gloo's threads alive (PyTorch issue
# 190489)
GLOO_ABORTS = "terminate called without an active exception"
RESUMED_AT_40 = ("resumed at step 40: epoch 0 step 40\n",)
RUNS = [
    Run(
        "landmarks_keras.py",
        ("keras", "jax"),
        SMALL,
        environ=(("KERAS_BACKEND", "jax"), *TWO_DEVICES),
        nightly=True,
    ),
    Run("landmarks_jax.py", ("jax",), SMALL, says=(" of 40 images, ",)),
    Run("landmarks_jax.py", ("jax",), SMALL, environ=TWO_DEVICES, nightly=True),
    Run("landmarks_torch_ddp.py", ("torch",), SMALL, says=(" of 40 images, ",), nightly=True),
    Run("cifar_torch.py", ("torch",), ("--epochs", "1")),
    Run(
        "shards_keras.py",
        ("keras", "tensorflow"),
        ("--data", "{photos}/train"),
        says=("120 images, ", "6 bad: 2 not_image, 2 truncated, 1 bomb, 1 empty"),
    ),
    Run(
        "pairs_torch.py",
        ("torch",),
        PHOTOS,
        says=("Together(before=", ", 5 bad samples"),
        nightly=True,
    ),
    Run("tfdata_one_line.py", ("tensorflow",), PHOTOS, nightly=True),
    Run(
        "keras_one_line.py",
        ("keras", "tensorflow"),
        (*PHOTOS, "--epochs", "8"),
        says=("Found 126 files belonging to 5 classes.",),
        nightly=True,
    ),
    Run(
        "keras_one_line.py",
        ("keras", "jax"),
        (*PHOTOS, "--format", "keras"),
        environ=(("KERAS_BACKEND", "jax"),),
        nightly=True,
    ),
    Run("keras_multi_gpu.py", ("keras", "jax"), PHOTOS, says=("2 devices, jax\n",), nightly=True),
    Run(
        "keras_multi_gpu.py",
        ("keras", "tensorflow"),
        PHOTOS,
        environ=(("KERAS_BACKEND", "tensorflow"),),
        says=("2 devices, tensorflow\n",),
        nightly=True,
    ),
    Run("keras_hub_example.py", ("keras", "tensorflow", "keras_hub"), PHOTOS, nightly=True),
    Run("horovod/before.py", ("torch",), PHOTOS, mpirun=True, nightly=True),
    Run("horovod/after.py", ("torch",), (*PHOTOS, "--epochs", "7"), nightly=True),
    Run("horovod/after.py", ("torch",), PHOTOS, mpirun=True, nightly=True),
    Run(
        "lightning_example.py",
        ("torch", "lightning"),
        ("--epochs", "2"),
        says=("62 steps in all, 22 since the checkpoint, to epoch 2",),
        nightly=True,
    ),
    Run("accelerate_example.py", ("torch", "accelerate"), nightly=True),
    Run(
        "transformers_example.py",
        ("torch", "transformers"),
        says=(
            "'feed_wait': ",
            "% of the time for batches",
            "the machine is gone, at epoch 1 step 14\n",
            "\n93 steps in all, 53 since the checkpoint\n",
        ),
        nightly=True,
    ),
    Run(
        "torchft_example.py", ("torch", "torchft"), says=("[(0, 2", ", ended at [(1, 29), (1, 29)]")
    ),
    Run("flax_example.py", ("jax", "flax", "orbax"), says=RESUMED_AT_40),
    Run(
        "equinox_example.py",
        ("jax", "equinox", "optax", "orbax"),
        says=RESUMED_AT_40,
        nightly=True,
    ),
    Run(
        "ray_train_torch.py",
        ("torch", "ray", "pandas", "pyarrow", "pydantic"),
        environ=(("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_worker_niceness", "0")),
        nightly=True,
    ),
    Run("timm_example.py", ("torch",), (*PHOTOS, "--epochs", "8"), nightly=True),
    Run(
        "grain_watched.py",
        ("jax", "grain"),
        (*PHOTOS, "--epochs", "15"),
        says=("% of the time, got ",),
        nightly=True,
    ),
    Run(
        "tfdata_watched.py",
        ("keras", "tensorflow"),
        (*PHOTOS, "--epochs", "7"),
        says=("plain: the logs have accuracy, loss\n",),
        nightly=True,
    ),
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once for all workers of pytest-xdist, as examples do; next to them is room for what
    examples write.
    """
    run = run_folder(tmp_path_factory)
    environ = environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(EXAMPLES)]))
    make = [sys.executable, "-c", "import made; made.photographs(None)"]
    subprocess.run(make, cwd=run, env=environ, check=True, timeout=LIMIT_S)
    photos = tmp_path_factory.mktemp("examples") / "photos"
    photos.symlink_to(run / ".fastfeed-demo" / "example-photos")
    return photos


def output(run: Run, photos: Path, *more: str) -> str:
    require(*run.needs)
    if run.mpirun and shutil.which("mpirun") is None:
        pytest.skip(
            "no mpirun; `make test` installs it where it may, else: apt-get install openmpi-bin"
        )
    args = [str(arg).replace("{photos}", str(photos)) for arg in (*run.args, *more)]
    command = [sys.executable, *run.launcher, str(EXAMPLES / run.script), *args]
    if run.mpirun:
        command = ["mpirun", *MPIRUN, *command]
    for _ in range(2):
        more_environ = {
            "OMP_NUM_THREADS": "1",
            "HVD_PORT": str(free_port()),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        done = subprocess.run(
            command,
            env=environment(**more_environ, **dict(run.environ)),
            cwd=photos.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode == 0 or GLOO_ABORTS not in done.stderr:
            break
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def free_port() -> int:
    with socket.socket() as socket_:
        socket_.bind(("localhost", 0))
        return socket_.getsockname()[1]


def by_tier(runs: list[Run]) -> list[ParameterSet]:
    return [
        pytest.param(run, id=str(run), marks=[pytest.mark.nightly] * run.nightly) for run in runs
    ]


def learned(text: str) -> None:
    found = re.findall(r"^accuracy ([0-9.]+).*, chance ([0-9.]+)$", text, re.MULTILINE)
    assert len(found) == 1, text[-2000:]
    accuracy, chance = map(float, found[0])
    assert accuracy >= chance + 0.09, f"accuracy {accuracy} is hardly above chance, {chance}"


@pytest.mark.parametrize("run", by_tier(RUNS))
def test_an_example_learns(run: Run, photos: Path) -> None:
    text = output(run, photos)
    learned(text)
    for words in run.says:
        assert words in text
    assert ("images/s" in text) == (run.script not in ("horovod/before.py", "timm_example.py"))


def test_predictions_are_scored_as_coco_does(photos: Path) -> None:
    """A model that knows the truth has a precision of 1: nothing is lost there and back."""
    text = output(COCO, photos)
    assert "bbox AP 1.000\n" in text and "keypoints AP 1.000\n" in text


PROOFS = [  # what is trained is worthless
    Run("prove_torch.py", ("torch",), (*PHOTOS, "--seconds", "1"), nightly=True),
    Run("prove_jax.py", ("jax",), (*PHOTOS, "--seconds", "1"), nightly=True),
    Run("prove_keras.py", ("keras", "tensorflow"), PHOTOS, PROVE, nightly=True),
]


@pytest.mark.parametrize("run", by_tier(PROOFS))
def test_a_trainer_is_proved(run: Run, photos: Path) -> None:
    text = output(run, photos)
    assert re.search(r"^part of step +ms +95 % interval +share$", text, re.MULTILINE)
    assert re.search(r"^  total  ", text, re.MULTILINE)


RECIPES = [  # nothing is trained
    Run(
        "augmentations_torchvision.py",
        ("torch",),
        PHOTOS,
        says=("images (16, 3, 96, 96) torch.float32",),
    ),
    Run("augmentations_keras.py", (), PHOTOS, says=("images (16, 96, 96, 3) float32",)),
]
COCO = Run("coco_evaluation.py", ("pycocotools",))
FILTERS = Run(
    "score_and_filter.py",
    (),
    ("--data", "{photos}/train", "--shards", "filtered", "--where", "edges > 4"),
    says=(" where edges > 4\n", "6 bad: ", "images are left, the least sharp of them has 4."),
)


def test_photographs_are_scored_and_filtered(photos: Path) -> None:
    text = output(FILTERS, photos)
    for words in FILTERS.says:
        assert words in text


@pytest.mark.parametrize("run", RECIPES, ids=str)
def test_a_recipe_of_another_library_runs_here(run: Run, photos: Path) -> None:
    text = output(run, photos)
    for words in (
        *run.says,
        "labels (16, 5)",
        "images/s",
        "give every photograph the same bytes: True",
    ):
        assert words in text


STAND_INS = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/helpers/stand_ins")))
HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None
FUNCTIONS = [
    Run("albumentations_ops.py", ("albumentations",), says=("the mask is right for 9",)),
    Run(
        "torchvision_v2_ops.py",
        ("torch",),
        SMALL,
        environ=() if HAS_TORCHVISION else (("PYTHONPATH", STAND_INS),),
        says=("images (16, 3, 32, 32) torch.float32", "generator is untouched: True"),
    ),
]


@pytest.mark.parametrize("run", FUNCTIONS, ids=lambda run: run.script)
def test_transforms_of_another_library_run_in_a_feed(run: Run, photos: Path) -> None:
    text = output(run, photos)
    for words in (*run.says, "the same bytes at any number of ranks and threads: True"):
        assert words in text


FOUR = (*TORCHRUN[:-1], "4")
RESUMED = [
    Run(
        "fsdp_torch.py",
        ("torch",),
        ("--checkpoint", "fsdp", "--epochs", "1"),
        FOUR,
        says=("epoch 0 step 40", "rank 0 of 2 (local 0 of 4), 2 processes each"),
        nightly=True,
    ),
    Run(
        "landmarks_torch_ddp.py",
        ("torch",),
        (*SMALL, "--checkpoint", "ddp.pt"),
        TORCHRUN,
        says=("epoch 5 step 2", " of 40 images, "),
    ),
    Run(
        "accelerate_example.py",
        ("torch", "accelerate"),
        ("--folder", "run", "--epochs", "1"),
        ACCELERATE,
        says=("epoch 0 step 40",),
        nightly=True,
    ),
]


@pytest.mark.parametrize("run", by_tier(RESUMED))
def test_two_ranks_go_on_inside_an_epoch(run: Run, photos: Path) -> None:
    steps = "37" if "ddp" in run.script else "40"
    output(run, photos, "--max-steps", steps)
    text = output(run, photos)
    learned(text)
    for words in run.says:
        assert words in text


def test_keras_learns_and_leaves_no_backup(photos: Path) -> None:
    text = output(
        Run("landmarks_keras.py", ("keras", "tensorflow"), (*SMALL, "--backup", "backup")), photos
    )
    learned(text)
    assert "images/s" in text
    assert not (photos.parent / "backup").exists(), "a run that has ended needs no backup"


def test_every_example_is_run_and_explained() -> None:
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    # tests/project/ports, tests/project/loaders, test_serving.py, test_clusters.py
    files = {
        name
        for name in files
        if not name.startswith(("ports/", "loaders/", "neighbors/", "serving/", "clusters/"))
    }
    assert (
        files
        == {run.script for run in (*RUNS, *PROOFS, *RECIPES, *FUNCTIONS, *RESUMED, FILTERS, COCO)}
        | HELPERS
    ), "a new example needs a row in RUNS"
    table = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(files) if f"`{name}`" not in table] == []


def test_horovod_to_fastfeed_is_a_short_diff() -> None:
    before, after = (
        (EXAMPLES / "horovod" / name).read_text().splitlines() for name in ("before.py", "after.py")
    )
    assert len(set(after) - set(before)) <= 15
    assert len(after) < len(before)
