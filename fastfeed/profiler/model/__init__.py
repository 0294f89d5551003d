"""The normal form of a trace and of a result, and the arithmetic on both."""
