"""`make gpu-check`: everything that needs a GPU, in one command, as a table and one JSON object.

__main__   the parts in turn, each on its own, within a time budget       setting    what all parts
are told bare       what a machine without a package registry may lack             machine
hardware, driver, versions photos     0. the photographs          rates    1. images per second
(contestants: who takes part) steps      2. steps per second (nets)  faults   3. bad files
(spoiled), memory agree      4. pixels (ops, splits), order of streams (streams)            overlap
5. copies under compute
"""
