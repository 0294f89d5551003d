"""`horovodrun -np 2` on a Horovod without a framework: it could start ranks, but asks first whether
Gloo was built.

Gloo is part of Horovod's framework extensions, and needed by the ranks' collectives only, not to
start them.
"""

from __future__ import annotations

import sys

from horovod.runner import launch

if __name__ == "__main__":  # it starts processes that import this file again
    launch.gloo_built = lambda verbose=False: True
    sys.argv = ["horovodrun", "-np", "2", "--gloo", *sys.argv[1:]]
    launch.run_commandline()
