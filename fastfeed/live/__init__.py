"""Live pages of running feeds, and the screen that shows whether a GPU is starved.

Reads what running feeds write to their live pages; never talks to a trainer.
"""
