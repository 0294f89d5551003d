"""Checks a list of ops and folds it into one `Program`.

compile          checks every spec, folds geometry into one window, moves conversion last
program          the compiled list, which backends run
window           geometric ops as one window per sample; layers: pixel ops, one per layer and sample
"""
