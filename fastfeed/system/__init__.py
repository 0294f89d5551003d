"""What differs between operating systems, one subject per module; all else imports these.

clocks          the clock of everything that is timed
descriptors     opening files, reading and writing at an offset
locks           one process of a machine at a time, by a lock on a file
folders         fsync of a folder, free space of a disk
forks           callbacks in forked children
processes       cores, memory, users, limits, other processes
shared_memory   memory without a name that processes share
signals         which signals there are, and what a process died of

Nothing here raises where a system lacks something: it does less, as each function says. What cannot
work without it asks first (`shared_memory.is_available`, `processes.can_supervise`).
"""
