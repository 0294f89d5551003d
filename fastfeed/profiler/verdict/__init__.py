"""The largest loss and the change for it, or the reasons against a verdict."""
