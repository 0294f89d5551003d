"""ff.keras.backup: fits that are killed and started again see every batch in order, and end as if
undisturbed.
"""

import json
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ranks_at_work as at_work
from helpers.needs import needs, require

pytestmark = [pytest.mark.slow, needs("keras")]

EPOCHS, STEPS = 3, at_work.SAMPLES // 8
# backend, save_freq, batches to live in each attempt (None: chosen by chance), steps per execution
RUNS = [
    *(("tensorflow", every, None, 1) for every in (3, "epoch")),
    *(
        pytest.param(backend, every, None, 1, marks=pytest.mark.nightly)
        for backend in ("jax", "torch")
        for every in (3, "epoch")
    ),
    (
        "tensorflow",
        STEPS,
        [STEPS, 2 * STEPS - 1],
        1,
    ),  # right after a backup that falls on the end of an epoch
    ("jax", 2, [6], 2),  # in executions of two steps, of which the third of an epoch has one
]


Fit = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Fit]]:
    """`fitted(backend)` is who runs fits on it, `(*arguments) -> (exit code, errors)`, and has
    loaded Keras once.
    """
    started: dict[str, tuple[subprocess.Popen[str], Path]] = {}

    def on(backend: str) -> Fit:
        if backend not in started:
            said = tmp_path_factory.mktemp("said") / backend
            with said.open("w") as errors:
                started[backend] = (
                    at_work.work("keras_backup_run.py", backend, asked=True, errors=errors),
                    said,
                )
        process, said = started[backend]

        def fit(*arguments: object) -> tuple[int, str]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps([*arguments], default=str) + "\n")
            process.stdin.flush()
            code = process.stdout.readline()
            assert code, said.read_text()[-4000:]
            return int(code), said.read_text()

        return fit

    yield on
    for process, _ in started.values():
        process.communicate(timeout=at_work.LIMIT_S)


@pytest.mark.parametrize(("backend", "every", "lives", "together"), RUNS)
def test_killed_fits_end_as_undisturbed(
    tmp_path: Path, fitted, backend, every, lives, together, fresh_seed
):
    require(backend)
    fit = fitted(backend)
    rng = random.Random(fresh_seed)
    lives = (
        [rng.randrange(every if every != "epoch" else STEPS, 8) for _ in range(2)]
        if lives is None
        else lives
    )
    order, steps = at_work.order(EPOCHS), EPOCHS * STEPS
    reached, done = 0, 0
    for attempt, batches in enumerate([*lives, 0]):
        code, err = fit(tmp_path, every, batches, together)
        assert code == (-signal.SIGKILL if batches else 0), err[-4000:]
        trained = [
            json.loads(line) for line in (tmp_path / "trained.jsonl").read_text().splitlines()
        ]
        trained = [
            (epoch * STEPS + step, ids) for number, epoch, step, ids in trained if number == attempt
        ]
        assert [at for at, _ in trained] == list(range(reached, trained[-1][0] + 1)), (
            "from the last backup, in order"
        )
        assert all(order[at] == ids for at, ids in trained)
        done = trained[-1][0] + 1
        if batches:
            state = tmp_path / "backup" / "state.json"
            if state.exists():
                saved = json.loads(state.read_text())
                reached = saved["feed"]["epoch"] * STEPS + saved["feed"]["step"]
                assert saved["keras_epoch"] == reached // STEPS
            # Keras ends an epoch after its last batch, so that one may not be saved yet
            assert done - reached <= (STEPS if every == "epoch" else max(every, together) - 1)
    assert done == steps
    at_work.same(json.loads((tmp_path / "weights.json").read_text()), at_work.trained(steps=steps))
    assert not (tmp_path / "backup").exists()


@needs("tensorflow")
def test_words(tmp_path):
    [said] = at_work.told([at_work.work("keras_backup_run.py", "words", tmp_path)])
    assert (
        said.pop("other")
        == f"StateError: {tmp_path / 'other' / 'state.json'} was not written by keras.backup;"
        " choose another folder"
    )
    assert said.pop("torn").startswith(
        f"StateError: {tmp_path / 'torn' / 'state.json'} is not a saved state: "
    )
    assert said.pop("list").endswith("is not a saved state: got list; pass what save_state wrote")
    assert (
        said.pop("unbuilt")
        == "ConfigError: the model must be built before training resumes from a backup; give it an"
        " Input layer, or call it on a batch before fit"
    )
    assert (
        said.pop("another batch")
        == "StateError: cannot restore: global_batch was 8, this feed has 9, so the order would"
        " change; pass global_batch=8 (batch counts per rank)"
    )
    assert said.pop("another data set").startswith(
        "StateError: cannot restore: the data differs from what the state was saved with; start a new"
    )
    for name, got in (("zero", 0), ("true", True), ("half", 0.5), ("batch", "batch")):
        wanted = f'ConfigError: save_freq must be "epoch" or a number of batches >= 1, got {got!r}'
        assert said.pop(name) == wanted
    assert said == {}, "nothing else was refused"
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["best.weights.h5"], (
        "what is not ours stays"
    )
    assert sorted(file.suffix for file in (tmp_path / "kept").iterdir()) == [".h5", ".json"]
