"""A simulated training run, every idle nanosecond of which has a known cause, written in five
dialects.

    events.py      what a recording holds, in no dialect: ops, calls, ranges, and the truth
    machine.py     GPUs, streams, a host with threads: what takes how long, what waits for what
    loader.py      worker threads that make batches
    truth.py       what the program was doing while its device had nothing to do
    training.py    forward, backward, optimizer: the program that scenarios vary
    scenarios.py   SCENARIOS: one training run each, and the verdict it deserves; cases.py has those
    of many GPUs to_nsys.py, to_nvprof.py, to_chrome.py, to_xplane.py, to_timeline.py    one writer
    of each dialect disturbances.py  what else makes a host late, and all of it together
    confusion.py   truth against what an analysis says, nanosecond by nanosecond judged.py
    scenarios as the analysis sees them write.py       python
    tests/helpers/profiler/simulator/write.py SCENARIO FOLDER

Nothing here imports the analysis: the causes come from the program's own state.
"""
