"""Is this GPU starving now?

Reads what running feeds write to their live pages; never talks to a trainer.

From shared memory to a sentence:

    pages       finds pages, judges whether their processes live, removes those that have ended
    rates       two readings of a page -> need, make, waiting, time per stage
    states      rates -> FED ... SEVERE, STALLED, UNKNOWN, with hysteresis
    remedies    what to change, with a number
    nvml, cpu   the GPU (GPM or older calls) and the CPU of a process, from outside
    watch       all of these once a second -> `Row` per feed
    screen, document, prometheus, web    rows for a terminal, as JSON, as metrics, in a browser
    stacks/     trainers without a feed: samples of their stacks
"""
