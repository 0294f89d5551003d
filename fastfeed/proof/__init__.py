"""Is it the input?

Measures one trainer with five kinds of input, and says what each part of a step costs.

prove          ff.prove(step, feed): for a function of one's own
trainer        the same inside an unchanged trainer, switched on by FASTFEED_PROVE
loaders        the same with a loader that is no Feed; `data_loaders` finds PyTorch's in an
unchanged trainer session        when a block of steps begins and ends; `inputs` opens what it is
fed with, `batches` makes them modes, design  the five modes, their order, and how many steps of
each page_cache     makes the files of coming batches warm or cold statistics     block means into
parts with intervals (`student`: quantiles); `result` what is known in the end, `whatif`
               what would help
text, page     the report (`sentences`: what both say); `ranks` one row per number of ranks
runner         runs the trainer and reads what it has measured; `launch` starts and ends its
processes
"""
