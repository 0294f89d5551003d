"""Everything that needs a GPU, step by step: on this machine, or packed for another one."""
