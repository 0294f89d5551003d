"""Rotate, Affine, Perspective: their matrices against plain references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import Affine, Perspective, Rotate
from fastfeed.ops.warp import affine_matrices
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED, PIXELS, Spec

IDENTITY = np.eye(3)


def drawn(op, n=20_000, size=(60, 80), seed=0):
    """Matrices (n, 3, 3)."""
    sizes = np.tile(np.array([size]), (n, 1))
    matrix = op.params(uniform(seed, 0, np.arange(n), 0, op.draws), sizes)["matrix"]
    assert matrix.shape == (n, 3, 3) and matrix.dtype == np.float64 and np.isfinite(matrix).all()
    return matrix


def through(matrix, x, y):
    a, b, w = matrix @ [x, y, 1]
    return a / w, b / w


# -- matrices


@given(
    st.floats(-360, 360),
    st.tuples(st.floats(-100, 100), st.floats(-100, 100)),
    st.floats(0.1, 10),
    st.floats(-80, 80),
    st.floats(-80, 80),
    st.tuples(st.floats(0, 500), st.floats(0, 500)),
)
def test_affine_matrices_are_the_inverse_of_what_is_done(
    angle, translate, scale, shear_x, shear_y, center
):
    """Step by step, as torchvision's `_get_inverse_affine_matrix` explains itself: T C R S SHy SHx
    C^-1, inverted.
    """

    def move(x, y):
        return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]])

    r, sx, sy = math.radians(angle), math.radians(shear_x), math.radians(shear_y)
    turn = np.array([[math.cos(r), -math.sin(r), 0], [math.sin(r), math.cos(r), 0], [0, 0, 1]])
    along_y = np.array([[1, 0, 0], [-math.tan(sy), 1, 0], [0, 0, 1]])
    along_x = np.array([[1, -math.tan(sx), 0], [0, 1, 0], [0, 0, 1]])
    grow = np.diag([scale, scale, 1])
    done = (
        move(*translate)
        @ move(*center)
        @ turn
        @ grow
        @ along_y
        @ along_x
        @ move(-center[0], -center[1])
    )
    got = affine_matrices(angle, translate, scale, shear_x, shear_y, center)
    np.testing.assert_allclose(got[0] @ done, IDENTITY, atol=1e-7)


def test_affine_matrices_of_many():
    angle, shift = np.array([0.0, 10, 20]), np.array([[1, 2], [3, 4], [5, 6.0]])
    got = affine_matrices(angle, shift, scale=2, center=(7, 8))
    for row in range(3):
        np.testing.assert_array_equal(
            got[row], affine_matrices(angle[row], shift[row], 2, 0, 0, (7, 8))[0]
        )
    np.testing.assert_array_equal(affine_matrices(center=(3.3, 9.1))[0], IDENTITY)


def test_rotations_are_uniform_and_about_the_middle():
    matrix = drawn(Rotate((-20, 60)))
    angle = np.degrees(np.arctan2(-matrix[:, 0, 1], matrix[:, 0, 0]))
    assert -20 <= angle.min() < -19.9 and 59.9 < angle.max() <= 60
    assert abs(angle.mean() - 20) < 0.5 and abs(angle.std() - 80 / math.sqrt(12)) < 0.3
    np.testing.assert_allclose(
        matrix @ [40, 30, 1], np.tile([40, 30, 1], (len(matrix), 1)), atol=1e-9
    )
    np.testing.assert_allclose(np.linalg.det(matrix), 1)
    assert np.abs(np.degrees(np.arcsin(drawn(Rotate(30))[:, 1, 0]))).max() <= 30


def test_affine_draws_what_it_says():
    """Amounts read back from the matrices: shear before scale before rotation."""
    op = Affine((-30, 10), (0.1, 0.25), (0.5, 2), (-20, 5, 0, 15))
    forward = np.linalg.inv(drawn(op))
    scale = np.sqrt(np.linalg.det(forward))
    assert (
        0.5 <= scale.min() < 0.502 and 1.998 < scale.max() <= 2 and abs(scale.mean() - 1.25) < 0.01
    )
    shift = (forward @ [40, 30, 1])[:, :2] - [40, 30]
    np.testing.assert_allclose(shift, np.rint(shift), atol=1e-9)
    assert np.rint(shift).min(axis=0).tolist() == [-8, -15] and np.rint(shift).max(
        axis=0
    ).tolist() == [8, 15]
    np.testing.assert_allclose(shift.mean(axis=0), 0, atol=0.2)
    only_shear = np.linalg.inv(drawn(Affine(shear=(-20, 5, 0, 15))))
    along_y = np.degrees(np.arctan(-only_shear[:, 1, 0]))
    along_x = np.degrees(np.arctan(-only_shear[:, 0, 1] / only_shear[:, 0, 0]))
    assert (
        0 <= along_y.min() < 0.1 and 14.9 < along_y.max() <= 15 and abs(along_y.mean() - 7.5) < 0.1
    )
    assert (
        -20 <= along_x.min() < -19.9
        and 4.9 < along_x.max() <= 5
        and abs(along_x.mean() + 7.5) < 0.2
    )
    turned = np.linalg.inv(drawn(Affine((-30, 10))))
    angle = np.degrees(np.arctan2(turned[:, 1, 0], turned[:, 0, 0]))
    assert -30 <= angle.min() < -29.9 and 9.9 < angle.max() <= 10 and abs(angle.mean() + 10) < 0.3


def corners_of(op, u, size):
    """RandomPerspective.get_params of torchvision, its random calls answered from u: top left, then
    clockwise.
    """
    height, width = size
    reach = (int(op.distortion * (width // 2)) + 1, int(op.distortion * (height // 2)) + 1)
    moved = [int(v * reach[i % 2]) for i, v in enumerate(u[:8])]
    right, bottom = width - reach[0], height - reach[1]
    return [
        (moved[0], moved[1]),
        (right + moved[2], moved[3]),
        (right + moved[4], bottom + moved[5]),
        (moved[6], bottom + moved[7]),
    ]


@pytest.mark.parametrize("size", [(60, 80), (224, 224), (2, 5), (3, 3), (7, 2000)])
def test_perspective_takes_moved_corners_to_the_image_s(size):
    op, n = Perspective(0.6, 1.0), 200
    u = uniform(4, 0, np.arange(n), 0, op.draws)
    ends = [(0, 0), (size[1] - 1, 0), (size[1] - 1, size[0] - 1), (0, size[0] - 1)]
    same = 0
    for row, matrix in enumerate(op.params(u, np.tile(np.array([size]), (n, 1)))["matrix"]):
        corners = corners_of(op, u[row], size)
        got = [through(matrix, *corner) for corner in corners]
        same += np.allclose(got, ends, atol=1e-6)
    assert same == n


def test_perspective_happens_as_often_as_it_says_and_reaches_as_far():
    matrix = drawn(Perspective(0.5, 0.3))
    tilted = (matrix != IDENTITY).any(axis=(1, 2))
    assert abs(tilted.mean() - 0.3) < 0.02
    top_left = np.linalg.inv(drawn(Perspective(0.5, 1.0))) @ [0, 0, 1]
    top_left = np.rint(top_left[:, :2] / top_left[:, 2:])
    for axis, most in ((0, 20), (1, 15)):  # half of half of 80 and 60 pixels
        counts = np.bincount(top_left[:, axis].astype(int), minlength=most + 1)
        assert len(counts) == most + 1
        np.testing.assert_allclose(counts / len(top_left), 1 / (most + 1), rtol=0.15)


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1)])
def test_perspective_leaves_lines_alone(size):
    np.testing.assert_array_equal(
        drawn(Perspective(0.5, 1.0), 50, size), np.tile(IDENTITY, (50, 1, 1))
    )


@pytest.mark.parametrize("size", [(2, 2), (3, 3), (4, 4), (60, 80)])
def test_perspective_never_folds(size):
    """With all of half a side, corners may meet or pass each other."""
    forward = np.linalg.inv(drawn(Perspective(1.0, 1.0), 3000, size))
    right, bottom = size[1] - 1, size[0] - 1
    moved = np.array(
        [[0, 0, 1], [right, 0, 1], [right, bottom, 1], [0, bottom, 1]]
    ) @ forward.transpose(0, 2, 1)
    depth = moved[..., 2] * np.sign(moved[:, :1, 2])
    x, y = moved[..., 0] / moved[..., 2], moved[..., 1] / moved[..., 2]
    assert (depth > 0).all()
    assert (
        (x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(axis=1) > 0
    ).all()  # clockwise still
    assert (forward != IDENTITY).any(axis=(1, 2)).mean() > 0.5 or size != (60, 80)


# -- refusals

AFFINE = "Affine shear must be a number in [0, 89] or a pair (low, high), got"
SHEAR = "write shear=10, (-10, 10) or (-10, 10, -5, 5)"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Rotate("x"),
            (
                "Rotate degrees must be a number in [0, 360] or a pair (low, high), got 'x'; "
                "write Rotate(15) or Rotate((-10, 10))"
            ),
        ),
        (
            lambda: Rotate(-5),
            (
                "Rotate degrees must be a number in [0, 360] or a pair (low, high), got -5; "
                "write Rotate(15) or Rotate((-10, 10))"
            ),
        ),
        (
            lambda: Rotate((20, 10)),
            (
                "Rotate degrees must be -360 <= low <= high <= 360, got (20, 10); write Rotate(15)"
                " or Rotate((-10, 10))"
            ),
        ),
        (
            lambda: Rotate(5, "bicubic"),
            "Rotate filter must be one of bilinear, nearest, got 'bicubic'",
        ),
        (lambda: Rotate(5, fill=7), "Rotate fill must be three integers in [0, 255], RGB, got 7"),
        (lambda: Affine(shear=90), f"{AFFINE} 90; {SHEAR}"),
        (lambda: Affine(shear=(1, 2, 3)), f"{AFFINE} (1, 2, 3); {SHEAR}"),
        (
            lambda: Affine(shear=(0, 5, 9, 3)),
            f"Affine shear must be -89 <= low <= high <= 89, got (9, 3); {SHEAR}",
        ),
        (
            lambda: Affine(translate=5),
            (
                "Affine translate must be two shares in [0, 1], of width and height, got 5; write"
                " translate=(0.1, 0.1)"
            ),
        ),
        (
            lambda: Affine(translate=(0.1, 2)),
            (
                "Affine translate must be two shares in [0, 1], of width and height, got (0.1, 2); "
                "write translate=(0.1, 0.1)"
            ),
        ),
        (
            lambda: Affine(scale=(0, 1)),
            "Affine scale must be in [0.001, 1000], got (0, 1); write scale=(0.8, 1.2)",
        ),
        (
            lambda: Affine(scale=2),
            "Affine scale must be a pair (low, high), got 2; write scale=(0.8, 1.2)",
        ),
        (lambda: Perspective(1.5), "Perspective distortion must be in [0, 1], got 1.5"),
        (lambda: Perspective(p=-1), "Perspective p must be in [0, 1], got -1"),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text


@pytest.mark.parametrize("op", [Rotate(5), Affine(5), Perspective()], ids=repr)
def test_needs_bytes_of_one_size(op):
    name = type(op).__name__
    for spec, text in (
        (ENCODED, f"{name} needs HWC pixels, got encoded bytes; put Decode() before it"),
        (PIXELS, f"{name} needs images of one size, got"),
        (Spec((3, 4, 3), "float32", "HWC"), f"{name} works on bytes, got"),
    ):
        with pytest.raises(SpecError) as error:
            op.out(spec)
        assert str(error.value).startswith(text)
