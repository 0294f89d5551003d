"""What the last minutes were like, and which waits a GPU shows. Time is made up."""

import pytest
from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer, reading

from fastfeed.live.document import document
from fastfeed.live.nvml import Gpus
from fastfeed.live.page import WAITING
from fastfeed.live.watch import BUCKETS, Exposure, History, Monitor


def readings(every, seconds, wait):
    """A page whose trainer waits so much of each second."""
    for k in range(int(seconds / every) + 1):
        at = k * every
        spent = sum(wait(n) for n in range(int(at))) + wait(int(at)) * (at % 1)
        yield reading(at + 100, wait_ns=spent, consumer_ns=at - spent, since_ns=at + 100)


@pytest.mark.parametrize("every", [0.2, 0.5, 1.0, 2.0, 4.0])
def test_the_last_minutes_are_the_same_however_often_one_looks(every):
    history = History()
    for look in readings(every, 40, lambda second: 0.8 if second >= 20 else 0.0):
        history.add(look)
    assert len(history.shares) == 20
    assert history.shares == pytest.approx([0.0] * 10 + [0.8] * 10, abs=1e-6)


def test_a_look_after_a_long_time_stands_for_all_of_it():
    history = History()
    for look in readings(60, 600, lambda _: 0.25):
        history.add(look)
    assert history.shares == pytest.approx([0.25] * BUCKETS)


def test_a_wait_is_exposed_while_the_gpu_idles():
    exposure = Exposure(10.0)
    assert exposure.share is None
    for k in range(51):  # waits half of each bin; its GPU idles in one of five
        at = k * 0.2
        look = reading(at, wait_ns=at / 2, consumer_ns=at / 2, since_ns=at)
        exposure.add(look, 0.1 if k % 5 == 0 else 0.9)
    assert exposure.share == pytest.approx(0.1)
    # not known: not counted
    exposure.add(reading(11, wait_ns=5, consumer_ns=5, since_ns=10, phase=WAITING), None)
    assert exposure.share == pytest.approx(0.1)


def test_a_wait_behind_a_busy_gpu_is_hidden():
    exposure = Exposure(10.0)
    for k in range(20):
        exposure.add(reading(k * 0.2, phase=WAITING, since_ns=0.0), 0.95)
    assert exposure.share == 0.0


@pytest.mark.parametrize(("sm", "share"), [(5.0, 0.5), (80.0, 0.0)])
def test_glances_between_looks(tmp_path, sm, share):
    trainer, nvml = Trainer(tmp_path), FakeNvml(gpm={2: sm})

    def sleep(seconds):
        assert seconds <= 0.2
        trainer.train(0.2, 0.5)

    gpus = Gpus(nvml)
    watch = Monitor([str(tmp_path)], None, gpus, clock=lambda: trainer.now)
    watch.look()
    for second in range(10):
        watch.wait(1.0, sleep)
        view = watch.look()
        assert second == 9 or document(view)["feeds"][0]["estimate"]["exposed_wait_10s"] is None
    assert view.rows[0].exposed == pytest.approx(share)
    assert document(view)["feeds"][0]["estimate"]["exposed_wait_10s"] == pytest.approx(share)
    gpus.close()
    assert nvml.allocated == 0


@pytest.mark.parametrize("options", [{}, {"gpm": {2: 5.0}, "refused_after": 3}])
def test_without_gpm_nothing_is_said_of_exposure(tmp_path, options):
    trainer, nvml = Trainer(tmp_path), FakeNvml(**options)
    gpus = Gpus(nvml)
    watch = Monitor([str(tmp_path)], None, gpus, clock=lambda: trainer.now)
    watch.look()
    for _ in range(3):
        watch.wait(1.0, lambda seconds: trainer.train(max(seconds, 0.2), 0.5))
        view = watch.look()
    assert view.rows[0].exposed is None or options
    assert not gpus.has_gpm
    gpus.close()
    assert nvml.allocated == 0
