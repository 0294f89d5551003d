"""`fit`, `evaluate`, `predict` on every backend of Keras that is installed, each in a process of
its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import needs
from PIL import Image

pytestmark = needs("keras")

BACKENDS = [
    pytest.param("tensorflow", marks=needs("tensorflow")),
    pytest.param("jax", marks=[needs("jax"), pytest.mark.slow]),
    pytest.param("torch", marks=[needs("torch"), pytest.mark.nightly]),
]
STEPS = 5  # 44 samples, batch 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for kind, count in (("some", 40), ("all", 0)):
        for label in ("a", "b"):
            (root / kind / label).mkdir(parents=True)
            for i in range(count // 2):
                pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / kind / label / f"{i:03}.jpg")
    for name in ("a/005.jpg", "b/011.jpg"):
        (root / "some" / name).write_bytes(b"not a photograph")
    for i in range(30):
        (root / "all" / "ab"[i % 2] / f"{i}.jpg").write_bytes(b"neither")
    return root


@pytest.fixture(scope="module", params=BACKENDS)
def session(request, folder) -> dict:
    program = Path(__file__).with_name("keras_session.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), request.param, str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_keras_takes_the_adapter_as_it_is(session):
    assert "DataAdapter" in session["adapter"]


def test_fit_sees_every_step_of_every_epoch_once(session):
    assert session["steps"] == [STEPS] * 3
    assert [row[:2] for row in session["train"]] == [[e, s] for e in range(3) for s in range(STEPS)]
    assert session["state"]["epoch"] == 3
    assert session["stats"] == [3 * STEPS * 8, 3 * STEPS]


def test_epochs_reshuffle_and_validation_does_not(session):
    first, second = ([row[2] for row in session["train"] if row[0] == epoch] for epoch in (0, 1))
    assert first != second
    for epoch in range(3):
        ids = [i for row in session["train"] if row[0] == epoch for i in row[2]]
        assert len(set(ids)) == STEPS * 8
    walks = [[row[2] for row in session["val"] if row[0] == epoch] for epoch in range(3)]
    assert walks[0] == walks[1] == walks[2]
    assert [i for ids in walks[0] for i in ids][:44] == list(range(44))


def test_padding_does_not_count_in_evaluation(session):
    by_hand, evaluated = session["accuracy"]
    assert evaluated == pytest.approx(by_hand, abs=1e-6)
    assert session["predicted"] == [44, 3]
    assert session["val_loss"][1] == pytest.approx(session["val_loss"][0], abs=1e-5)


def test_what_does_not_go_with_a_feed_is_refused(session):
    assert [kind for kind, _ in session["refused"]] == [
        *["ConfigError"] * 5,
        "ValueError",
        "TypeError",
    ]
    twice, other, second, two, batch, split, workers = (text for _, text in session["refused"])
    assert (
        "x and validation_data must be two feeds, got the same feed for both; create another Feed"
        in twice
    )
    assert (
        "this keras.backup saves the position of Feed(" in other
        and "batch=16" in other
        and "batch=8" in other
    )
    only = "keras.backup must be the only callback that restores training, got FeedBackup, "
    assert second.startswith(f"{only}BackupAndRestore: the epoch of one would move the feed of the")
    assert two.startswith(f"{only}FeedBackup:")
    assert batch == (
        "batch_size must not be given to fit or evaluate together with a feed: Keras would ignore"
        " it; batches are those of Feed(batch=...); for arrays to validate on, pass"
        " validation_batch_size"
    )
    assert "val_loss" in session["validated"]
    assert "`validation_split` is only supported for tensors or NumPy arrays" in split  # Keras's
    assert "got an unexpected keyword argument 'workers'" in workers


def test_soft_labels_are_trained_on_and_weighed_by_class(session):
    told, by_hand = session["soft"]
    assert told == pytest.approx(by_hand, rel=1e-5)


def test_boxes_and_their_labels_are_trained_on(session):
    told, by_hand = session["objects"]
    assert told == pytest.approx(by_hand, rel=1e-5)


def test_layers_of_keras_augment_behind_ops_and_not_in_evaluation(session):
    told, by_hand, first, last = session["layers"]
    assert told == pytest.approx(by_hand, rel=1e-5)
    assert last < first


def test_several_inputs_and_outputs_are_fields_by_name(session):
    told, by_hand, steps = session["outputs"]
    assert told == pytest.approx(by_hand, rel=1e-5)
    assert steps == [2, 2] and session["position"] == [2, 0]
    told, by_hand = session["autoencoder"]
    assert told == pytest.approx(by_hand, rel=1e-5)


def test_texts_are_for_keras_on_tensorflow_alone(session):
    if session["backend"] == "tensorflow":
        assert session["texts"] == 1
    else:
        assert session["texts"].startswith("ConfigError: yields cannot hold the field 'caption' h")
        assert f"Keras on {session['backend']} computes on numbers alone" in session["texts"]


def test_batches_are_finished_by_the_feeds_threads(session):
    """Cut, weighed and, but for TensorFlow, copied to Keras's device: not by the thread that
    trains.
    """
    assert session["placers"] == ["fastfeed-"]


def test_a_restored_feed_resumes_where_it_stood(session):
    assert session["restored"][:2] == [[0, 3], [0, 4]]
    assert session["restored"][2:] == [[1, step] for step in range(STEPS)]
    (told,) = session["logged"]
    assert told.startswith(
        "this epoch began at step 3 of 5, where it was resumed, so it is shorter for Keras, which"
        " says"
    )


def test_the_feed_follows_the_epoch_at_which_fit_begins(session):
    """The order and the augmentation of epoch 0 would be trained on again."""
    followed = session["followed"]
    assert followed["initial_epoch"] == [[e, s] for e in (3, 4) for s in range(STEPS)]
    assert followed["short epochs"] == [
        [1, 3],
        [1, 4],
        [2, 0],
        [2, 1],
    ], "four epochs of two steps, and the next ones go on in the feed's next epoch"
    assert followed["restored"] == [[2, s] for s in range(STEPS)]
    assert followed["sought"] == [[1, s] for s in range(STEPS)]
    assert followed["again"] == 5


def test_a_watch_without_a_feed_finds_the_one_that_is_fitted(session):
    assert session["watched"] == [True] * 3


def test_predictions_of_a_shuffled_feed_are_refused_and_samples_left_out_are_said(session):
    kind, text = session["predict shuffled"]
    assert kind == "ConfigError"
    assert "got shuffle='full': nothing tells which prediction belongs to which file" in text
    assert session["predicted in part"] == 40
    write = 'create one with shuffle=False, tail="pad", on_bad="mask"'
    assert session["left out"] == [
        f"{name} leaves out 4 of 44 samples: the feed drops an incomplete last batch; {write}"
        for name in ("evaluate", "predict")
    ]


def test_an_adapter_used_again_continues_and_honors_seek(session):
    assert session["again"] == [[2, 0], [2, 1], [3, 0], [3, 1], [4, 0], [4, 1], [7, 1], [7, 2]]


def test_several_steps_per_execution(session):
    assert session["several_steps"] == [[e, s] for e in range(2) for s in range(STEPS)]


def test_a_feed_that_no_one_holds_is_collected(session):
    assert session["collected"]


def test_an_epoch_of_one_step(session):
    epochs = [epoch for epoch, _ in session["one_step"]]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    assert len(epochs) in (3, 4)  # a backend that looks at a batch to build the model uses one up


def test_an_exception_in_user_code_and_ctrl_c_come_through_and_leave_no_thread(session):
    assert session["user_error"] == "the user's own mistake"
    assert session["interrupted"]
    assert session["threads"] == []


def test_broken_files(session):
    assert session["some_broken"] == [[5, 5], ["005.jpg", "011.jpg"]]
    assert "too many bad samples" in session["all_broken"]
    assert "check the data" in session["all_broken"]
    assert session["feed_error"] == ["TooManyFailures"] * 2, (
        "and nothing that the framework made of it"
    )


def test_fallback_for_versions_that_refuse_adapters(session):
    assert session["fallback"] != "FeedAdapter"
    assert session["fallback_steps"] == [STEPS] * 3
    # a PyDataset is asked one batch ahead
    ahead = len(session["fallback_train"]) - len(session["train"])
    assert ahead in (0, 1)
    assert session["fallback_train"][: 3 * STEPS] == session["train"]
