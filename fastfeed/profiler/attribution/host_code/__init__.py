"""Code that a host thread runs while it launches nothing: its frames, its kind, and the time that
functions cost.
"""
