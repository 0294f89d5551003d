"""What a feed runs on: threads, reused memory, the timeline, batches and where they are placed.

thread_pool      daemon threads, and jobs that come out in order
buffers, batch   reused batch memory; the batches that a feed yields
placement        batches on a framework's devices
addresses        where the bytes of samples are, for native threads; kernel loads the C++ module
timeline         spans of all stages over time
live_page        what a running feed publishes, in live_folder; progress: what its threads are
working on atomic_write     files that are replaced by atomic rename misuse           errors for
common mistakes with a feed, with the fix
"""
