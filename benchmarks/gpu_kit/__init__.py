"""`make gpu-kit`: everything for half an hour on a machine with a GPU and no registry, in parts
small enough to travel.

here, `make gpu-kit`
    pack       makes build/gpu-kit: which packages is in `contents`, files in parts and back in
    `parts` dry        `make gpu-kit-dry`: all of it on the processor, with tiny sizes
there, `python3 run.py`
    run        one call of less than ten minutes; the next one resumes
    unpack     wheels into a folder      machine    what is there      process    one step in a
    process of its own table      the steps, in order       marks      what must be met   report
    the page and the JSON
in a step's process
    step       its JSON                  steps/     one module each; much of it is
    benchmarks/gpu_check

Nothing but the standard library is imported until a step runs: the machine may lack everything.
"""
