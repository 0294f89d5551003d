"""The machinery under a feed: threads, reused memory, the timeline, batches and their placement."""
