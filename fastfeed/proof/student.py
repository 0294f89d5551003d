"""Quantiles of Student's t."""

from __future__ import annotations

__all__ = ["student_95"]

# two-sided 95 % quantiles with 1 to 30 degrees of freedom
_T = [
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
]
_T += [
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
]
_Z = 1.959964


def student_95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; above 30 degrees by its expansion (Abramowitz and
    Stegun, 26.7.5).
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
