"""The processes that do the work, who leads them, and how much memory they may use."""
