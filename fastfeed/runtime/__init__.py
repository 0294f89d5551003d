"""What a feed runs on: threads, reused memory, the timeline, batches and where they are placed."""
