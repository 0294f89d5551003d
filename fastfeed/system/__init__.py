"""Differences between operating systems, one subject per module.

Nothing here raises if a system lacks something: it does less, as each function documents. Callers
that cannot work without it ask first (`shared_memory.is_available`, `processes.can_supervise`).
"""
