"""Ranks: which one this process is, its GPU and its share of the machine's cores.

world            rank and world size, from launchers: what torchrun, Slurm, MPI and others set
launch           pins one GPU to each process
rank_agreement   refuses a feed of another rank than the framework's
cores            how many cores and how much memory this process may use
"""
