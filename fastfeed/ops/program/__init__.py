"""A list of ops, checked and folded into one `Program`."""
