"""Collapsed stacks as py-spy 0.4 wrote them, with the text of the user's lines, and what each
is.
"""

from __future__ import annotations

import pytest

from fastfeed.live.stacks.frames import Frame, Stack, main_stacks, source_lines
from fastfeed.live.stacks.summary import key, read_stack, summarize, title
from fastfeed.profiler.attribution.classify import Activity

LIB = "/usr/lib/python3.11"
TORCH = f"{LIB}/site-packages/torch"
QUEUE = f"Queue.get ({LIB}/queue.py:171);Condition.wait ({LIB}/threading.py:327)"
LOADER = f"_BaseDataLoaderIter.__next__ ({TORCH}/utils/data/dataloader.py:733)"
MAIN = "<module> (/code/train.py:90);train (/code/train.py:{})"
TEXTS = {
    4: "for images, labels in loader:",
    5: "batch = q.get()",
    6: "loss = model(images)",
    7: "log['loss'] = loss.item()",
    8: "images = normalize(images)",
    9: "worker.join()",
    10: "obs = env.step(action)",
    11: "writer.add(metrics)",
    12: "x = sum(values)",
    13: "for i in range(100000):",
    14: "for x in values: total += x",
    15: "score = reader.fetch()",
}
STACKS = {
    f"{MAIN.format(4)};batches (/code/data.py:9);{QUEUE}": (
        Activity.INPUT,
        "Queue.get",
        4,
    ),  # a generator
    f"{MAIN.format(5)};{QUEUE}": (Activity.INPUT, "Queue.get", 5),
    f"{MAIN.format(4)};{LOADER};_MultiProcessingDataLoaderIter._next_data ({TORCH}/utils/data/dataloader.py:1400);{QUEUE}": (
        Activity.INPUT,
        "Queue.get",
        4,
    ),
    f"{MAIN.format(4)};{LOADER};fetch ({TORCH}/utils/data/_utils/fetch.py:54);Photos.__getitem__ (/code/data.py:3);resize ({LIB}/site-packages/PIL/Image.py:2365)": (
        Activity.INPUT_IN_THREAD,
        "__getitem__",
        4,
    ),
    f"{MAIN.format(4)};OwnedIterator.__next__ ({LIB}/site-packages/tensorflow/python/data/ops/iterator_ops.py:810);_next_internal ({LIB}/site-packages/tensorflow/python/data/ops/iterator_ops.py:776);iterator_get_next ({LIB}/site-packages/tensorflow/python/ops/gen_dataset_ops.py:3081)": (
        Activity.INPUT,
        "OwnedIterator.__next__",
        4,
    ),
    f"{MAIN.format(8)};preprocess (/code/images.py:40)": (Activity.INPUT_IN_THREAD, "", 40),
    f"{MAIN.format(6)};Module._call_impl ({TORCH}/nn/modules/module.py:1784);forward (/code/net.py:20);conv2d ({TORCH}/nn/functional.py:10)": (
        Activity.FRAMEWORK,
        "conv2d",
        20,
    ),
    f"{MAIN.format(6)};_compile_inner ({TORCH}/_dynamo/convert_frame.py:10)": (
        Activity.COMPILE,
        "_compile_inner",
        6,
    ),
    f"{MAIN.format(7)}": (Activity.SYNC, "", 7),
    f"{MAIN.format(9)};Thread.join ({LIB}/threading.py:1119);_wait_for_tstate_lock ({LIB}/threading.py:1139)": (
        Activity.WAITING,
        "Thread.join",
        9,
    ),
    f"{MAIN.format(10)};step ({LIB}/site-packages/gymnasium/core.py:327)": (
        Activity.ENVIRONMENT,
        "step",
        10,
    ),
    f"{MAIN.format(11)};add ({LIB}/site-packages/wandb/run.py:327)": (
        Activity.CHECKPOINT,
        "add",
        11,
    ),
    f"{MAIN.format(12)}": (Activity.PYTHON, "", 12),
    f"{MAIN.format(13)}": (Activity.PYTHON, "", 13),
    f"{MAIN.format(14)}": (Activity.PYTHON, "", 14),
    f"{MAIN.format(2)};_find_and_load (<frozen importlib._bootstrap>:1176)": (
        Activity.LOAD,
        "_find_and_load",
        2,
    ),
}
LINES = list(STACKS)


def text(file: str, line: int) -> str:
    return TEXTS.get(line, "") if file == "/code/train.py" else ""


def stacks(*lines: str) -> list[Stack]:
    return main_stacks([f"thread (4711): MainThread;{line}" for line in lines], 4711, text)


@pytest.mark.parametrize("line", STACKS)
def test_the_kind_of_a_stack(line):
    (stack,) = stacks(f"{line} 3")
    reading = read_stack(stack.frames)
    function = reading.function.name.rpartition(".")[2] if reading.function else ""
    kind, name, at = STACKS[line]
    assert (reading.kind, function, reading.below.line) == (kind, name.rpartition(".")[2], at)


def test_idle_threads_wait_in_code_that_is_not_python():
    (loop,) = stacks(f"{MAIN.format(4)} 1")
    (call,) = stacks(f"{MAIN.format(15)} 1")
    assert [
        read_stack(stack.frames, is_idle).kind
        for stack in (loop, call)
        for is_idle in (False, True)
    ] == [
        Activity.PYTHON,
        Activity.INPUT,
        Activity.PYTHON,
        Activity.WAITING,
    ]


def test_stacks_of_the_main_thread_alone():
    lines = [
        "thread (12): MainThread;main (a b;c.py:3) 2",
        "thread (4711);main (/x.py:1);get (/y.py) 5",
        "thread (4712): loader;main (/x.py:1) 9",
        "thread (4712): MainThread(2);main (/x.py:1) 9",
        "no stack at all",
        "",
    ]
    assert main_stacks(lines, 4711, lambda file, line: f"{file} {line}") == [
        Stack((Frame("main", "/x.py", 1, "/x.py 1"), Frame("get", "/y.py", 0, "/y.py 0")), 5),
        Stack((Frame("main", "a b;c.py", 3, "a b;c.py 3"),), 2),
    ]


def test_source_as_the_process_sees_it(tmp_path):
    inside = tmp_path / "proc/7/root/code/train.py"
    inside.parent.mkdir(parents=True)
    inside.write_text("import os\n    x = 1\n")
    text = source_lines(7, tmp_path)
    assert [text("/code/train.py", line) for line in (2, 3, 0)] == ["x = 1", "", ""]
    assert text("<frozen importlib._bootstrap>", 1) == ""


def test_shares_and_the_verdict():
    wait, prepare, other = LINES[0], LINES[3], f"{MAIN.format(12)}"
    summary = summarize(stacks(f"{wait} 60", f"{prepare} 15", f"{other} 25"), 0.5)
    assert (
        summary.verdict
        == "75% of samples wait for input or prepare batches in the main thread; 60% are in"
        " Queue.get (queue.py:171) below train (train.py:4)."
    )
    assert "ff.watched" in summary.advice
    assert {key(kind): share for kind, share in summary.kinds.items()} == {
        "input": 0.6,
        "python": 0.25,
        "input_in_thread": 0.15,
    }
    first = summary.as_dict()["functions"][0]
    assert first["below"] == {
        "name": "train",
        "file": "/code/train.py",
        "line": 4,
        "text": TEXTS[4],
    }
    assert "Move this work" in summarize(stacks(f"{prepare} 15"), None).advice


def test_unknown_code_is_not_called_innocent():
    summary = summarize(stacks(f"{MAIN.format(12)} 99", f"{LINES[0]} 1"), None)
    assert (
        summary.verdict
        == "1% of samples are known to be input; 99% are in train (train.py:12) (other code)."
    )


def test_other_waits_may_be_input():
    summary = summarize(stacks(f"{LINES[9]} 100"), None)
    assert summary.verdict.startswith(
        "100% of samples wait, for input or something else; 100% are in Thread.join"
    )


@pytest.mark.parametrize(
    ("samples", "ready", "is_hung"),
    [(500, 0.0, True), (500, 0.004, False), (500, None, False), (5, 0.0, False)],
)
def test_a_thread_that_hangs(samples, ready, is_hung):
    summary = summarize(stacks(f"{LINES[0]} {samples}"), ready)
    assert summary.is_hung is is_hung
    assert ("It hangs" in summary.verdict) is is_hung
    assert not summarize(stacks(f"{LINES[0]} 250", f"{LINES[1]} 250"), 0.0).is_hung


def test_every_kind_has_a_key_and_a_title():
    kinds = set(Activity) - {Activity.NOTHING}
    assert len({key(kind) for kind in kinds}) == len({title(kind) for kind in kinds}) == len(kinds)
