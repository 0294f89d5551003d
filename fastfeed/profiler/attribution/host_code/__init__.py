"""Host code without launches: its frames, its kind, and the time that functions cost."""
