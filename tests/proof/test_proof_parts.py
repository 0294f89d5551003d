"""The pure parts of a proof: order of modes, number of steps, intervals, estimates."""

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from fastfeed.errors import ProofError
from fastfeed.proof.measure.block_sizes import BlockSizes, choose, least_block, shortened
from fastfeed.proof.measure.modes import FEED_MODES, PARTS, Mode, order
from fastfeed.proof.measure.record import Block, ProofRecord
from fastfeed.proof.measure.statistics import difference, mean, parts, t_quantile
from fastfeed.proof.report import sentences
from fastfeed.proof.report.text import plain
from fastfeed.proof.result import Proof
from fastfeed.proof.run.ranks import RankCount, RankScaling
from fastfeed.proof.step_costs import Measured, what_if

MS = 1_000_000


def record(step_ms, rounds=4, noise_ms=0.0, **more):
    """One with these step times by mode, and this much more or less in every second round."""
    sizes = BlockSizes(rounds, 5, 10)
    feed = {"name": "train", "source": "ImageFolder", "samples": 1000, "batch": 8, "steps": 125}
    feed |= {"threads": 2, "prefetch": 2, "side_process": False, "rank": 0, "world": 1}
    stages = {"read": 10 * 8 * 1 * MS, "decode": 10 * 8 * 6 * MS}
    blocks = [
        Block(
            mode,
            k,
            10,
            round(10 * MS * (ms + (-1) ** k * noise_ms)),
            5 * MS,
            0,
            stages if mode == "warm" else {},
        )
        for k in range(rounds)
        for mode, ms in step_ms.items()
    ]
    values = {
        "modes": list(step_ms),
        "sizes": sizes,
        "blocks": blocks,
        "rounds": rounds,
        "steps": 999,
    }
    return ProofRecord(
        feed,
        60.0,
        **(values | {"complete": True, "cores": 4, "no_cold": "it was not asked for"} | more),
    )


STARVED = {"resident": 10.0, "cached": 10.5, "busy": 12.0, "warm": 28.0}


def test_the_order_of_modes_is_drawn_for_each_round():
    """Every order as likely as any other, by another draw in each round and proof, the same on all
    ranks.
    """
    modes = list(FEED_MODES)
    rounds = [order(modes, turn, seed) for turn in range(20) for seed in range(300)]
    assert all(sorted(turn) == sorted(modes) for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) == math.factorial(5)
    assert [order(modes, turn, 7) for turn in range(4)] == [
        order(modes, turn, 7) for turn in range(4)
    ]
    for mode in modes:
        places = [turn.index(mode) for turn in rounds]
        assert [places.count(place) / len(rounds) for place in range(5)] == pytest.approx(
            [0.2] * 5, abs=0.02
        )
    follows = sum(turn.index(Mode.COLD) == turn.index(Mode.WARM) + 1 for turn in rounds)
    assert follows / len(rounds) == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("step_s", [0.001, 0.02, 0.2, 3.0])
def test_a_design_fits_into_its_time_where_the_smallest_does(step_s):
    sizes = choose(60.0, step_s, 5, 2)
    assert 4 <= sizes.rounds <= 24 and sizes.steps >= 5
    smallest = 4 * 5 * 10 * step_s
    assert sizes.rounds * 5 * sizes.block * step_s <= max(60.0, smallest) * 1.01


def test_a_design_fits_into_short_epochs():
    """Blocks of 12 steps instead of 60, so five times as many: the time is used all the same."""
    free, short = choose(60.0, 0.01, 5, 2), choose(60.0, 0.01, 5, 2, longest=12)
    assert free.rounds == 20 and short.block == 12
    assert short.rounds * short.block == pytest.approx(free.rounds * free.block, rel=0.02)
    assert shortened(free, 12) == BlockSizes(157, 5, 7)
    assert shortened(free, 9) is None and least_block(2) == 10


@pytest.mark.parametrize("steps", [50, 80, 120, 200, 400])
def test_a_design_has_the_narrowest_intervals_that_its_time_allows(steps):
    """Of steps per mode; four rounds with long blocks know too little of how much they differ."""
    sizes = choose(steps * 5 * 0.1, 0.1, 5, 2)
    assert sizes.rounds * sizes.block <= steps

    def width(rounds, steps):
        return t_quantile(rounds - 1) / math.sqrt(rounds * steps)

    others = [(rounds, steps // rounds - 5) for rounds in range(4, 21)]
    best = min(width(rounds, counted) for rounds, counted in others if counted >= 5)
    assert width(sizes.rounds, sizes.steps) == best
    assert best <= width(4, steps // 4 - 5)


@pytest.mark.parametrize("step_s", [0.0005, 0.002, 0.05])
def test_more_time_gives_more_steps_that_count(step_s):
    """A proof that does not decide says to measure for longer, so that must help."""
    counted = [
        (d := choose(seconds, step_s, 5, 2)).rounds * d.steps for seconds in (60.0, 120.0, 240.0)
    ]
    assert counted[1] >= 1.8 * counted[0] and counted[2] >= 1.8 * counted[1]


def test_quantiles_of_student():
    """Against the table of any textbook."""
    for freedom, quantile in (
        (1, 12.706),
        (10, 2.228),
        (30, 2.042),
        (40, 2.021),
        (60, 2.000),
        (120, 1.980),
    ):
        assert t_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


def test_an_interval_by_hand():
    """1, 2, 3, 4: mean 2.5, standard deviation 1.29, so 2.5 +- 3.182 * 1.29 / 2."""
    estimate = mean([1e6, 2e6, 3e6, 4e6])
    assert estimate.ns == 2_500_000
    assert (estimate.high - estimate.low) / 2 == pytest.approx(
        3.182 * math.sqrt(5 / 3) / 2 * 1e6, rel=1e-4
    )


def test_what_both_modes_share_does_not_widen_their_difference():
    before, after = [10e6, 30e6, 20e6, 40e6], [11e6, 31e6, 21e6, 41e6]
    found = difference(before, after)
    assert found.ns == 1_000_000 and found.high - found.low < 10
    assert mean(after).high - mean(after).low > 1e6


def test_parts_without_cold_add_up_to_the_rest():
    means = {Mode(name): [ms * 1e6 + 0.3, ms * 1e6 + 0.4] for name, ms in STARVED.items()}
    found = parts(means)
    assert list(found) == ["copy", "contention", "preparation"]
    assert (
        sum(part.ns for part in found.values())
        == mean(means[Mode.WARM]).ns - mean(means[Mode.RESIDENT]).ns
    )
    assert list(PARTS)[:3] == list(found)


def test_what_if_says_how_many_threads():
    """7 ms of thread time per image, 8 images, 2 threads: 28 ms per batch; 12 ms need 5 threads."""
    proof = Proof.of(record(STARVED, gpu=True))
    rows = {row.change: row for row in proof.whatif}
    assert rows["an infinitely fast feed"].gain == pytest.approx(1.8)
    doubled = rows["2 times the cores and threads"]
    assert doubled.step_ns == pytest.approx(14 * MS)
    assert doubled.remedy == "threads=4 instead of 2; 5 for no wait at all"
    # 12 ms leave room for 3 of 7 ms, so the GPU must take 4 of the 6 ms that decoding takes
    assert "67%" in rows["JPEGs decoded by the GPU alone"].remedy
    assert proof.remedy is not None and proof.remedy.gain == max(
        row.gain for row in proof.whatif if row.remedy
    )


def test_what_if_says_how_many_cores():
    rows = {row.change: row for row in Proof.of(record(STARVED, cores=2)).whatif}
    remedy = rows["2 times the cores and threads"].remedy
    assert remedy == "threads=4 instead of 2, on 4 cores instead of 2; 5 for no wait at all"


def test_a_gpu_that_is_not_there_is_no_remedy():
    row = Proof.of(record(STARVED)).whatif[-2]
    assert (row.change, row.remedy) == ("JPEGs decoded by a GPU (none is used here)", "")


def test_twice_the_cores_leave_no_contention():
    """A batch takes 28 ms of thread time, so 7 ms by four threads: then the trainer has 12 ms,
    without 2 for them. With cores of their own two threads still take 14.
    """
    first = record({"resident": 10.0, "cached": 10.0, "busy": 12.0, "warm": 14.0})
    first.blocks = [
        replace(b, stage_ns={"decode": 80 * 3 * MS + 80 * MS // 2}) for b in first.blocks
    ]
    rows = {row.change: row for row in Proof.of(first).whatif}
    assert rows["2 times the cores and threads"].step_ns == 10 * MS
    own = rows["dedicated cores for the feed"]
    assert (own.step_ns, own.remedy) == (14 * MS, "")


def test_threads_that_only_disturb():
    """4 ms by two threads: the trainer waits for 1 ms for another reason, and 2 are the threads'
    share.
    """
    first = record({"resident": 10.0, "cached": 10.0, "busy": 12.0, "warm": 13.0})
    first.blocks = [replace(b, stage_ns={"decode": 80 * MS}) for b in first.blocks]
    for side_process, remedy in ((False, "side_process=True, fewer"), (True, "fewer")):
        first.feed["side_process"] = side_process
        own = Proof.of(first).whatif[-1]
        assert (own.step_ns, own.remedy) == (11 * MS, f"{remedy} threads, or more cores")


def test_threads_that_are_fast_enough_are_not_why_the_trainer_waits():
    """7 ms per image, 8 images, 16 threads: 3.5 ms per batch, and still it waits; more of them
    would not help.
    """
    waiting = record(STARVED | {"busy": 10.5}, gpu=True)
    waiting.feed["threads"] = 16
    proof = Proof.of(waiting)
    for row in proof.whatif[1:3]:
        assert (row.step_ns, row.gain, row.remedy) == (28 * MS, 0.0, "")


def test_what_if_with_cold_files():
    measured = Measured(
        resident=10e6,
        contention=0.0,
        fetches=True,
        busy=10e6,
        warm=20e6,
        cold=50e6,
        batch=10,
        threads=1,
        cores=2,
        warm_stage_ms={"read": 0.1, "decode": 1.9},
        cold_stage_ms={"read": 3.1, "decode": 1.9},
        gpu=True,
        side_process=False,
    )
    rows = {row.change: row for row in what_if(measured)}
    assert rows["a cache that holds all files"].step_ns == 20e6
    assert rows["storage 2 times as fast"].step_ns == 35e6


def test_no_estimate_is_below_the_trainer_or_above_what_is():
    for warm in (12.0, 13.0, 28.0, 90.0):
        for row in Proof.of(record(STARVED | {"warm": warm})).whatif:
            assert 10 * MS <= row.step_ns <= warm * MS
            assert row.gain >= 0


@pytest.mark.parametrize(
    ("warm", "noise", "word"),
    [
        (28.0, 0.0, "severe"),
        (13.0, 0.0, "severe"),
        (12.0, 0.0, "starved"),
        (10.2, 0.0, "not_starved"),
    ],
)
def test_the_word(warm, noise, word):
    modes = {"resident": 10.0, "cached": 10.0, "busy": 10.0, "warm": warm}
    assert sentences.word(Proof.of(record(modes))) == word


def test_an_undecided_proof_says_for_how_long_to_measure():
    sizes = record({"resident": 10.0, "cached": 10.0, "busy": 10.0, "warm": 11.0})
    noisy = [
        Block(
            b.mode,
            b.round,
            b.steps,
            b.ns + (b.mode == "warm") * (-1) ** b.round * 10 * MS,
            0,
            0,
            {},
        )
        for b in sizes.blocks
    ]
    sizes.blocks = noisy
    proof = Proof.of(sizes)
    assert sentences.word(proof) == "unsure"
    assert "times as long" in sentences.headline(proof)


def test_json_is_json_and_the_record_survives_it():
    first = record(STARVED)
    assert ProofRecord.from_dict(json.loads(json.dumps(first.as_dict()))) == first
    values = json.loads(json.dumps(Proof.of(first).as_dict(), allow_nan=False))
    assert values["fastfeed_prove"] == 1 and values["input"]["ms"] == 18.0
    assert sum(part["ms"] for part in values["parts"].values()) == pytest.approx(
        values["input"]["ms"]
    )
    assert values["verdict"] == "it is the input" and values["notes"]


def test_a_record_of_another_version_is_refused():
    with pytest.raises(ProofError, match="another version"):
        ProofRecord.from_dict({"fastfeed_prove_record": 99})


def test_too_few_rounds():
    with pytest.raises(ProofError, match="ended after 7 steps, while it was still settling"):
        Proof.of(record(STARVED, sizes=None, steps=7))
    with pytest.raises(
        ProofError, match="ended after 99 steps, and a proof of 60 s takes about 240 here"
    ):
        Proof.of(record(STARVED, rounds=1, sizes=BlockSizes(4, 5, 10), steps=99))


def test_an_incomplete_proof_says_so():
    proof = Proof.of(record(STARVED, rounds=2, sizes=BlockSizes(4, 5, 10), complete=False))
    assert "only 2 of 4 rounds" in proof.notes[-1]


def test_the_text_and_the_page_have_the_figures():
    proof = Proof.of(record(STARVED))
    for text in (str(proof), proof.html()):
        assert "28.00" in text and "IT IS THE INPUT" in text and "threads=4 instead of 2" in text
    assert "<script" not in proof.html() and "https://" not in proof.html()


def test_figures_have_no_negative_zero():
    assert (sentences.ms(-400), sentences.ms(-600), sentences.percent(-0.0003)) == (
        "0.000",
        "-0.001",
        "0.0 %",
    )
    assert [sentences.percent(share) for share in (-0.001, 12.3)] == ["-0.1 %", "1,230 %"]
    assert [sentences.ms(ns) for ns in (1.2345e9, 1.2345e10)] == ["1,234.5", "12,345"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width):
    for costs in (
        STARVED,
        {mode: 1e4 * ms for mode, ms in STARVED.items()},
        dict.fromkeys(STARVED, 10.0),
    ):
        lines = plain(Proof.of(record(costs), ["x" * 200]), width).splitlines()
        assert max(map(len, lines)) <= width
        assert not any("…" in line for line in lines)


def test_nothing_gains_more_than_a_feed_that_costs_nothing():
    """Also where noise makes real batches faster than one on the device."""
    for costs in (
        {"resident": 10.2, "cached": 9.3, "busy": 9.9, "warm": 8.9},
        STARVED | {"warm": 9.0},
    ):
        proof = Proof.of(record(costs))
        assert max(row.gain for row in proof.whatif) <= proof.gain + 1e-9
        assert f"faster than {min(costs['resident'], costs['warm']):.2f} ms" in sentences.cannot(
            proof
        )


def test_names_do_not_become_markup():
    first = record(STARVED)
    first.feed["name"] = "<script>alert(1)</script>"
    assert "<script" not in Proof.of(first).html()


def test_a_table_of_ranks():
    """Twice the ranks: synthetic twice as fast, real half as much more."""
    one = record({"resident": 10.0, "warm": 20.0}, modes=["resident", "warm"])
    two = [record({"resident": 10.0, "warm": 26.0}, modes=["resident", "warm"]) for _ in range(2)]
    scaling = RankScaling((RankCount.of(1, [one]), RankCount.of(2, two)))
    first, second = scaling.rows
    assert (first.synthetic, first.real) == (800.0, 400.0)
    assert (
        scaling.speed_up(second, "synthetic") == 2.0
        and scaling.efficiency(second, "synthetic") == 1.0
    )
    assert scaling.speed_up(second, "real") == pytest.approx(2 * 20 / 26, rel=1e-3)
    assert scaling.as_dict()["ranks"][1]["real_efficiency"] == pytest.approx(20 / 26, rel=1e-3)
    for width in (40, 80, 160):
        out = io.StringIO()
        scaling.render(Console(file=out, width=width))
        text = out.getvalue()
        assert (
            all(cell in text for cell in ("real", "2.00", "76.9 %", "1.54", "615"))
            and "…" not in text
        )
        assert max(map(len, text.splitlines())) <= width
    with pytest.raises(ProofError, match="1 of 2 ranks have iterated a feed"):
        RankCount.of(2, two[:1])
