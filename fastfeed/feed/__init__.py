"""Turns a source, a list of ops and a plan into batches, prepared ahead of the trainer.

feed             Feed; config checks and builds its parts; explain prints it; misuse is in runtime/
iterator         batches in order, and the position; producer makes them ahead with threads;
lockstep: zipped feeds batch_builder    one batch: loader and entries read samples, rows decodes and
augments; annotations: boxes and masks pending_batch, task_sizes, step_visits    rows and tasks of a
batch while it is built readahead        starts remote reads ahead of their batches substitutes
samples in place of bad ones; quarantine lists these; outages (with endpoints) waits for storage
for_trainers     to_keras, to_tfdata, to_jax, to_torch; for_adapters: what adapters call stats,
live_status    rates and waits; the live page of `fastfeed watch` identity         how a saved state
identifies the ops cluster_plan     simulates all ranks for `fastfeed plan` helper_process/  the
same in a process of its own, over shared memory
"""

from fastfeed.feed.feed import Feed

__all__ = ["Feed"]
