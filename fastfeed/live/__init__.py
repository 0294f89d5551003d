"""Is this GPU starving now?

Reads what running feeds write to their live pages; never talks to a trainer.
"""
