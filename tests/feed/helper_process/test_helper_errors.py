"""What cannot be passed to a helper process, what goes wrong in it, and what happens when it
dies.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal
from helpers.helper_feeds import Failing, Stuck, appears, ended, gone, helper, side

from fastfeed.errors import ConfigError, FastfeedError, StorageError
from fastfeed.feed.session import FeedSession
from fastfeed.ops import Resize
from fastfeed.sources import Arrays


def marked(**attributes: Any) -> Arrays:
    source = Arrays(NUMBERS)
    vars(source).update(attributes)
    return source


@pytest.mark.parametrize(
    ("value", "named"),
    [(lambda x: x, "<lambda>"), (threading.Lock(), "_thread.lock"), ((i for i in ()), "generator")],
    ids=["lambda", "lock", "generator"],
)
def test_what_does_not_pickle_is_named(value, named):
    with pytest.raises(ConfigError) as error:
        side(marked(own={"deep": [value]}))
    text = str(error.value)
    assert text.startswith(
        "side_process=True hands the source Arrays: 50 images, HWC uint8[8, 8, 3] to another"
        " process"
    )
    assert named in text
    assert text.endswith(
        "use functions and classes from the top level of a module, or leave side_process out"
    )


def test_a_class_inside_a_function_is_named():
    class Local(Arrays):
        pass

    with pytest.raises(ConfigError, match=r"Local.* does not pickle"):
        side(Local(NUMBERS))


def test_a_function_that_does_not_pickle_is_named():
    with pytest.raises(ConfigError) as error:
        side(Arrays(NUMBERS), [Resize((4, 4)), lambda image, numbers: image])
    assert str(error.value).startswith(
        "side_process=True hands the op Function(test_a_function_that"
    )


def test_side_process_is_true_or_false():
    with pytest.raises(ConfigError) as error:
        side(side_process=1)
    assert str(error.value) == "side_process must be True or False, got 1"


MAIN = """
import numpy as np, fastfeed as ff
class Mine(ff.Arrays):
    pass
try:
    ff.Feed(Mine(np.zeros((8, 8, 8, 3), "uint8")), [], batch=4, side_process=True)
except ValueError as error:
    print(error)
"""


def test_classes_of_main_are_refused_with_the_remedy(python):
    done = python(MAIN)
    assert (
        done.stdout
        == "side_process=True: Mine is defined in __main__, which the helper process does not run;"
        " move it into a module that can be imported (a .py file of its own, then `from"
        " that_file import Mine`), or leave side_process out\n"
    ), done.stderr


def test_what_a_fresh_interpreter_cannot_load(tmp_path, monkeypatch):
    (tmp_path / "only_here_once.py").write_text(
        "from fastfeed.sources import Arrays\nclass Mine(Arrays): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here_once  # type: ignore[import-not-found]

    with side(only_here_once.Mine(NUMBERS)) as data:
        (tmp_path / "only_here_once.py").write_text("import nowhere_at_all\n")
        for _ in range(2):
            with pytest.raises(
                ConfigError, match="ModuleNotFoundError: No module named 'nowhere_at_all'"
            ):
                next(iter(data))


def test_sys_path_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "found_by_path.py").write_text(
        "from fastfeed.sources import Arrays\nclass Mine(Arrays): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import found_by_path  # type: ignore[import-not-found]

    with side(found_by_path.Mine(NUMBERS)) as data:
        assert len(list(data)) == 5


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        pytest.param("memory", MemoryError, "^in the source$", marks=pytest.mark.slow),
        ("connection", StorageError, r"^by the storage\nSee docs/failures\.md#storage$"),
        pytest.param("exit", SystemExit, "^in the source$", marks=pytest.mark.slow),
        ("odd", RuntimeError, r"(?s)does not pickle:\nTraceback.*Odd: a sample in the source"),
    ],
)
def test_an_error_of_the_source_is_raised_in_its_place_and_the_feed_continues(error, kind, text):
    with side(Failing(error), shuffle=False) as data:
        walk = iter(data)
        assert [next(walk).step, next(walk).step] == [0, 1]
        with pytest.raises(kind, match=text):
            next(walk)
        assert data.state()["step"] == 2
        pid = helper(data)
        data.seek(0, 3)
        assert [b.step for b in data] == [3, 4]
        assert helper(data) == pid


def test_an_error_shows_where_it_was_raised():
    with side(Failing("memory"), shuffle=False) as data:
        with pytest.raises(MemoryError) as error:
            list(data)
        assert 'helper_feeds.py"' in str(error.value.__cause__)


def test_no_framework_is_imported():
    with side(Failing("modules"), shuffle=False) as data:
        with pytest.raises(MemoryError) as error:
            list(data)
        modules = set(error.value.args[0].split())
        assert "numpy" in modules
        assert not modules & {"torch", "jax", "tensorflow", "keras", "multiprocessing.spawn"}


def test_a_killed_helper_is_an_error_and_the_next_iteration_continues():
    with side(prefetch=0) as data, side(side_process=False) as alone:
        walk = iter(data)
        next(walk)
        pid = helper(data)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid)
        with pytest.raises(FastfeedError) as error:
            next(walk)
        assert (
            str(error.value)
            == f"the helper process {pid} of this feed died, killed by SIGKILL, which the system"
            " also sends where memory runs out; a new iteration continues from feed.state()"
            " with a new helper process"
        )
        assert FeedSession.of(data).cursor.error is error.value
        assert gone(pid)
        assert equal(list(data), list(alone.batches(0, 1)))
        assert helper(data) != pid


def test_a_consumer_that_waits_when_the_helper_dies(tmp_path):
    errors: list[str] = []
    with side(Stuck(tmp_path)) as data:

        def consume() -> None:
            try:
                next(iter(data))
            except FastfeedError as error:
                errors.append(str(error))

        consumer = threading.Thread(target=consume)
        consumer.start()
        appears(tmp_path / "asked")
        os.kill(helper(data), signal.SIGTERM)
        consumer.join()
        assert len(errors) == 1
        assert "died, killed by SIGTERM; a new" in errors[0]
        (tmp_path / "go").touch()
        assert len(list(data)) == 5


def test_batches_that_had_come_are_given_before_the_error():
    came = threading.Semaphore(0)

    def place(batch: Any) -> Any:
        came.release()
        return batch

    with side(prefetch=3) as data:
        walk = FeedSession.of(data).placed(place)
        first = next(walk)
        for _ in range(4):
            came.acquire()
        os.kill(helper(data), signal.SIGKILL)
        got = [first.step]
        with pytest.raises(FastfeedError, match="died"):
            for batch in walk:
                got.append(batch.step)
                assert np.array_equal(batch.images[:, 0, 0, 0], batch.ids)
        assert got[:4] == [0, 1, 2, 3]
