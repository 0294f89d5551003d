"""timm's RandAugment: its text, its ops and their strengths at each magnitude."""

from __future__ import annotations

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sampling.rng import uniform

SIZE = (40, 60)
# of timm 1.0's LEVEL_TO_ARG at magnitude 9, where the sign is drawn the positive one
AT_9 = {"Rotate": 27.0, "Shear": 0.27, "Translate": 0.405}
PLAIN = {"bits": 3, "threshold": 230, "amount": 99, "factor": 1.72}
INCREASING = {"bits": 1, "threshold": 26, "amount": 99, "factor": 1.81}


def chosen(op, n=6000, seed=3):
    """(op, values of its sample) that n samples take at each layer; None for none."""
    u = uniform(seed, 0, np.arange(n), 2, op.draws)
    made = op.choose(u, np.tile(np.array([SIZE]), (n, 1)))
    found = []
    for layer, choices in zip(op.layers, made, strict=True):
        for row, k in enumerate(choices.choice.tolist()):
            values = {name: of[row] for name, of in choices.values[k].items()} if k >= 0 else {}
            found.append((layer.ops[k], values) if k >= 0 else None)
    return found


def strengths(found, name):
    return np.array([values[name] for _, values in filter(None, found) if name in values])


@pytest.mark.parametrize(
    ("config", "want"), [("rand-m9-p1", PLAIN), ("rand-m9-inc1-p1", INCREASING)]
)
def test_strengths_are_timms(config, want):
    found = chosen(ff.RandAugment.from_timm(config))
    for name in ("bits", "threshold", "amount"):
        assert set(strengths(found, name).tolist()) == {want[name]}
    factors = set(np.round(strengths(found, "factor"), 6).tolist())
    assert factors == ({1.72} if want is PLAIN else {1.81, 0.19})
    shears, shifts, turns = set(), set(), set()
    for (a, b, c), (d, e, f), _ in strengths(found, "matrix"):
        if a != 1:
            turns.add(round(float(np.degrees(np.arctan2(d, a))), 4))
            middle = np.array([30, 20])
            np.testing.assert_allclose([[a, b], [d, e]] @ middle + [c, f], middle, atol=1e-9)
        elif b or d:
            shears.add((round(b, 6), round(d, 6)))
        else:
            shifts.add((round(c / SIZE[1], 6), round(f / SIZE[0], 6)))
    assert turns == {27.0, -27.0}
    assert shears == {(0.27, 0), (-0.27, 0), (0, 0.27), (0, -0.27)}
    assert shifts == {(0.405, 0), (-0.405, 0), (0, 0.405), (0, -0.405)}


def test_each_of_two_ops_is_done_to_half_of_the_samples():
    op = ff.RandAugment.from_timm("rand-m9")
    assert len(op.layers) == 2
    found = chosen(op)
    assert np.mean([one is None for one in found]) == pytest.approx(0.5, abs=0.02)
    inverted = np.mean([one is not None and isinstance(one[0], ff.Invert) for one in found])
    assert inverted == pytest.approx(0.5 / 15, abs=0.006)


def test_magnitudes_are_normal_uniform_or_fixed():
    for config, mean, deviation in (
        ("rand-m5-mstd1-p1", 5.0, 1.0),
        ("rand-m6-mstd101-p1", 3.0, 6 / 12**0.5),
        ("rand-m5-p1", 5.0, 0.0),
        ("rand-m30-p1", 10.0, 0.0),
        ("rand-m15-mmax20-p1", 15.0, 0.0),
    ):
        factor = strengths(chosen(ff.TimmRandAugment(config)), "factor")
        magnitudes = (factor - 0.1) / 0.18
        assert magnitudes.mean() == pytest.approx(mean, abs=0.1), config
        assert magnitudes.std() == pytest.approx(deviation, abs=0.1), config


def test_weighted_ops_are_drawn_once_and_as_often_as_timm_does():
    op = ff.TimmRandAugment("rand-n3-p1-m9-tweights")
    n = 4000
    found = chosen(op, n)
    turned = [
        k
        for k, (_, values) in enumerate(found)
        if "matrix" in values and values["matrix"][0, 0] < 1
    ]
    assert len({k % n for k in turned}) == len(turned), "never twice for one sample"
    # the first of three: 3 of 9.9
    assert np.mean(np.array(turned) < n) * len(turned) / n == pytest.approx(3 / 9.9, abs=0.02)
    three = {type(one[0]) for one in chosen(ff.TimmRandAugment("rand-p1-t3a"))}
    assert three == {ff.Solarize, ff.Saturation, ff.GaussianBlur}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("augmix-m5", 'must be a text that begins "rand-", got \'augmix-m5\'; write "rand-m9'),
        (9, 'must be a text that begins "rand-"'),
        ("rand-m9-w0", "must be sections m, n, p, mstd, mmax, inc with a number"),
        ("rand-m9.5", "TimmRandAugment m must be a whole number, got '9.5'"),
        ("rand-p2", "TimmRandAugment p must be in [0, 1], got '2'"),
        ("rand-inc2", "TimmRandAugment inc must be in [0, 1]"),
        ("rand-n16-tweights", "TimmRandAugment n must be at most 15 with weights"),
    ],
)
def test_refuses_other_texts(config, text):
    with pytest.raises(ConfigError) as error:
        ff.TimmRandAugment(config)
    assert text in str(error.value)
