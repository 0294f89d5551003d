"""Run a command under a profiler: light options, one recording per rank, the command's own exit code.

settings  ->  what to record, into which folder
session   ->  choose nsys, nvprof or neither; start the ranks; gather what they left
launchers ->  where a rank's program begins in the command of torchrun, mpirun, srun
rank      ->  what such a launcher starts instead: records its rank
recorder  ->  one command under one profiler
capture   ->  command lines of the profilers
child     ->  the command in the foreground: signals, exit code
"""

from __future__ import annotations

from fastfeed.profiler.runner.child import unrunnable
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import Recording, Settings, free_folder, rank_of

__all__ = ["Recording", "Settings", "free_folder", "rank_of", "record", "unrunnable"]
