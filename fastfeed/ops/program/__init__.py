"""Checks a list of ops and folds it into one `Program`."""
