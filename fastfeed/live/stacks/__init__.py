"""Trainers without a feed: the stack of their main thread, sampled from outside by py-spy.

py_spy      runs `py-spy record`; says in a sentence why it could not
frames      its output -> stacks of the main thread, with the source text of each line
kinds       a stack -> input, synchronization, ..., by the same signs as the profiler
summary     stacks -> shares by kind and by function, and a verdict
text        the summary for a terminal
watch       all of these, with the CPU and the GPU of the process
"""
