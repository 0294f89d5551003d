"""What ops that mix samples draw: shares, boxes, choices, partners."""

import math

import numpy as np
import pytest

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import CutMix, LabelSmoothing, MixUp, Mosaic, RandomChoice, RandomFlip
from fastfeed.ops.mix import AS_IS, BLEND, MOSAIC, PASTE, MixPlan, member_rows
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED, Spec

N, SIZE = 20_000, (60, 80)


def mixed(op, n=N, size=SIZE, seed=5) -> MixPlan:
    return op.mix_plan(uniform(seed, 2, np.arange(n), 3, op.draws), size)


def far(values: np.ndarray, cdf) -> float:
    """Kolmogorov and Smirnov's distance, times the root of n: above 1.95 in one of a thousand
    samples of `cdf`.
    """
    values = np.sort(values)
    steps = np.arange(len(values) + 1) / len(values)
    at = cdf(values)
    return math.sqrt(len(values)) * max((steps[1:] - at).max(), (at - steps[:-1]).max())


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_lambda_of_mixup_is_from_beta(alpha):
    found = mixed(MixUp(alpha))
    own = found.shares[:, 0]
    assert (found.how == BLEND).all() and found.shares.shape == (N, 2)
    variance = 1 / (4 * (2 * alpha + 1))
    assert own.mean() == pytest.approx(0.5, abs=4 * math.sqrt(variance / N))
    assert own.var() == pytest.approx(variance, rel=0.05)
    fourth = math.prod((alpha + k) / (2 * alpha + k) for k in range(4))
    assert (own**4).mean() == pytest.approx(fourth, rel=0.05)
    np.testing.assert_allclose(np.quantile(own, 0.1), 1 - np.quantile(own, 0.9), atol=0.02)


def test_lambda_of_two_known_distributions():
    assert far(mixed(MixUp(1.0)).shares[:, 0], lambda x: x) < 1.95
    assert far(mixed(MixUp(0.5)).shares[:, 0], lambda x: 2 / math.pi * np.arcsin(np.sqrt(x))) < 1.95
    assert far(mixed(MixUp(2.0)).shares[:, 0], lambda x: x * x * (3 - 2 * x)) < 1.95
    assert far(mixed(MixUp(0.5)).shares[:, 0], lambda x: x) > 5, (
        "the distance tells distributions apart"
    )


@pytest.mark.parametrize("op", [MixUp(p=0.3), CutMix(p=0.3), Mosaic(p=0.3)], ids=repr)
def test_p_says_how_many_are_mixed(op):
    found = mixed(op)
    out = found.how == AS_IS
    assert out.mean() == pytest.approx(0.7, abs=0.015)
    assert (found.shares[out, 0] == 1).all() and (found.shares[out, 1:] == 0).all()
    assert (found.box[out] == 0).all()


def test_p_of_zero_and_one_are_certain():
    for kind in (MixUp, CutMix, Mosaic):
        assert (mixed(kind(p=0)).how == AS_IS).all()
    assert (mixed(MixUp()).how == BLEND).all() and (mixed(Mosaic()).how == MOSAIC).all()


@pytest.mark.parametrize(
    "op",
    [MixUp(p=0.5), CutMix(0.3), Mosaic(), RandomChoice([Mosaic(), MixUp(), CutMix(p=0.5)])],
    ids=repr,
)
@pytest.mark.parametrize("size", [SIZE, (1, 1), (1, 900)])
def test_shares_are_parts_of_one_and_boxes_lie_inside(op, size):
    found = mixed(op, 2000, size)
    assert found.how.dtype == found.box.dtype == np.int64 and found.shares.dtype == np.float64
    assert found.shares.shape == (2000, op.group) and found.box.shape == (2000, 4)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, atol=1e-12)
    assert found.shares.min() >= 0
    assert (found.box >= 0).all()
    assert (found.box[:, :2] + found.box[:, 2:] <= size).all()


def test_boxes_of_cutmix_are_counted_as_they_are_cut_off():
    found = mixed(CutMix())
    box = found.box
    area = box[:, 2] * box[:, 3] / (SIZE[0] * SIZE[1])
    np.testing.assert_allclose(found.shares[:, 1], area, atol=1e-12)
    assert ((found.how == PASTE) == (area > 0)).all()
    assert (found.how == PASTE).mean() > 0.99
    at_edge = (box[:, :2] == 0).any(axis=1) | (box[:, :2] + box[:, 2:] == SIZE).any(axis=1)
    assert 0.5 < at_edge.mean() < 0.9


def test_boxes_of_cutmix_are_those_of_torchvision():
    """v2.CutMix.make_params, one sample at a time, from the same lambda and center."""
    op, (height, width) = CutMix(), SIZE
    u = uniform(1, 0, np.arange(500), 0, op.draws)
    found = op.mix_plan(u, SIZE)
    for row, (_, lam, y, x) in enumerate(u):  # alpha 1: lambda is the uniform number itself
        r = 0.5 * math.sqrt(1.0 - lam)
        half_w, half_h = int(r * width), int(r * height)
        cx, cy = int(x * width), int(y * height)
        x1, y1 = max(cx - half_w, 0), max(cy - half_h, 0)
        x2, y2 = min(cx + half_w, width), min(cy + half_h, height)
        area = (x2 - x1) * (y2 - y1)
        assert found.box[row].tolist() == ([y1, x1, y2 - y1, x2 - x1] if area else [0, 0, 0, 0])
        assert found.shares[row, 0] == pytest.approx(1 - area / (height * width))


def test_the_area_of_cutmix_before_it_is_cut_off_is_one_less_lambda():
    found = mixed(CutMix(), size=(1000, 1000))
    top, left, height, width = found.box.T
    inside = (top > 0) & (left > 0) & (top + height < 1000) & (left + width < 1000)
    assert (height[inside] == width[inside]).all()
    # half the root of a uniform number, if it fits: its distribution where the center is far enough
    # from the edge
    u = uniform(5, 2, np.arange(N), 3, 4)
    np.testing.assert_allclose(height[inside] / 1000, np.sqrt(1 - u[inside, 1]), atol=0.002)


def test_mosaics_meet_where_they_are_told_to():
    found = mixed(Mosaic(center=(0.2, 0.6)))
    for axis, length in enumerate(SIZE):
        place = found.box[:, axis] / length
        assert 0.2 <= place.min() < 0.21 and 0.59 < place.max() <= 0.6
        assert place.mean() == pytest.approx(0.4, abs=0.005)
    row, column = found.box[:, 0], found.box[:, 1]
    area = SIZE[0] * SIZE[1]
    np.testing.assert_allclose(found.shares[:, 0], row * column / area)
    np.testing.assert_allclose(found.shares[:, 1], row * (SIZE[1] - column) / area)
    np.testing.assert_allclose(found.shares[:, 2], (SIZE[0] - row) * column / area)


def test_choices_come_up_as_often_as_their_weights_say():
    found = mixed(RandomChoice([MixUp(), CutMix(), Mosaic()], weights=[1, 2, 5]))
    counts = np.bincount(found.how, minlength=4) / N
    np.testing.assert_allclose(counts, [0, 1 / 8, 2 / 8, 5 / 8], atol=0.015)
    found = mixed(RandomChoice([MixUp(), CutMix()]))
    assert (found.how == BLEND).mean() == pytest.approx(0.5, abs=0.015)
    assert (mixed(RandomChoice([CutMix(), MixUp(), CutMix()], [0, 0.1, 0])).how == BLEND).all()


def test_a_choice_is_what_was_chosen_with_numbers_of_its_own():
    """Which of them it is says nothing about lambda."""
    both = RandomChoice([MixUp(1.0), CutMix()])
    assert (both.draws, both.group) == (5, 2)
    found = mixed(both)
    own = found.shares[found.how == BLEND, 0]
    assert far(own, lambda x: x) < 1.95
    nested = RandomChoice([both, Mosaic()])
    assert (nested.draws, nested.group) == (6, 4)
    assert (np.bincount(mixed(nested).how, minlength=4) / N)[1:] == pytest.approx(
        [0.25, 0.25, 0.5], abs=0.015
    )


@pytest.mark.parametrize(
    "op", [MixUp(), CutMix(), Mosaic(), RandomChoice([MixUp(), Mosaic()])], ids=repr
)
def test_a_sample_depends_on_its_own_numbers_alone(op):
    u = uniform(1, 0, np.arange(50), 0, op.draws)
    whole = op.mix_plan(u, SIZE)
    for row in (0, 7, 49):
        one = op.mix_plan(u[row : row + 1], SIZE)
        assert one.how[0] == whole.how[row] and (one.box[0] == whole.box[row]).all()
        np.testing.assert_array_equal(one.shares[0], whole.shares[row])
    some = whole[np.array([3, 7])]
    assert (some.shares[1] == whole.shares[7]).all() and len(some.how) == 2
    assert len(op.mix_plan(u[:0], SIZE).how) == 0


def test_members_are_neighbors_in_the_order_own_first():
    assert member_rows(np.arange(8, 12), 4, 8).tolist() == [
        [0, 1, 2, 3],
        [1, 2, 3, 0],
        [2, 3, 0, 1],
        [3, 0, 1, 2],
    ]
    assert member_rows(np.array([5, 6, 9]), 2, 4).tolist() == [[1, 0], [2, 3], [5, 4]]
    assert member_rows(np.array([5, 6, 9]), 1, 5).tolist() == [[0], [1], [4]]
    rows = member_rows(np.arange(400), 4, 0)
    assert (np.sort(rows, axis=1) == np.arange(400).reshape(100, 4).repeat(4, axis=0)).all()
    assert (np.sort(rows, axis=0) == np.arange(400)[:, None]).all(), (
        "everybody is partner equally often"
    )


@pytest.mark.parametrize("op", [MixUp(), CutMix(), Mosaic(), RandomChoice([CutMix()])], ids=repr)
def test_any_pixels_of_one_size_will_do(op):
    for spec in (
        Spec((8, 9, 3), "uint8", "HWC"),
        Spec((1, 8, 9), "float32", "CHW"),
        Spec((8, 9, 1), "float16", "HWC"),
    ):
        assert op.out(spec) == spec
    name = "CutMix" if isinstance(op, RandomChoice) else type(op).__name__
    with pytest.raises(
        SpecError, match=rf"{name} needs images of one size, got HWC uint8\[\?, \?, 3\]; put Resize"
    ):
        op.out(Spec((None, None, 3), "uint8", "HWC"))
    with pytest.raises(
        SpecError, match=rf"{name} needs HWC pixels, got encoded bytes; put Decode\(\) before it"
    ):
        op.out(ENCODED)


@pytest.mark.parametrize("kind", [MixUp, CutMix])
@pytest.mark.parametrize("alpha", [0, -1, "small", True, float("nan"), float("inf")])
def test_an_alpha_out_of_range_is_refused(kind, alpha):
    with pytest.raises(
        ConfigError, match=rf"{kind.__name__} alpha must be in \(0, 1000\], got .*such as 0\.2"
    ):
        kind(alpha)


@pytest.mark.parametrize("kind", [MixUp, CutMix, Mosaic])
def test_a_p_out_of_range_is_refused(kind):
    with pytest.raises(ConfigError, match=rf"{kind.__name__} p must be in \[0, 1\], got 1.5"):
        kind(p=1.5)


@pytest.mark.parametrize("center", [(0.75, 0.25), (-0.1, 0.5), (0.5, 1.1), 0.5, "middle"])
def test_a_center_out_of_range_is_refused(center):
    with pytest.raises(ConfigError, match="Mosaic center must be"):
        Mosaic(center=center)


@pytest.mark.parametrize("ops", [[], MixUp(), [RandomFlip()], [MixUp], [LabelSmoothing()], None])
def test_a_choice_takes_ops_that_mix(ops):
    with pytest.raises(
        ConfigError,
        match=r"RandomChoice ops must be a list of MixUp\(\), CutMix\(\), Mosaic\(\), got",
    ):
        RandomChoice(ops)


@pytest.mark.parametrize(
    "weights", [[1], [1, 2, 3], [0, 0], [-1, 2], ["a", "b"], 3, [1, float("inf")], [1e308] * 2]
)
def test_wrong_weights_are_refused(weights):
    with pytest.raises(
        ConfigError,
        match="RandomChoice weights must be 2 numbers >= 0, one per op and not all 0, got",
    ):
        RandomChoice([MixUp(), CutMix()], weights)
