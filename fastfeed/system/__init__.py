"""Differences between operating systems, one subject per module.

Nothing here raises where a system lacks something: it does less, as each function says. What cannot
work without it asks first (`shared_memory.is_available`, `processes.can_supervise`).
"""
