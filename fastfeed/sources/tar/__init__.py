"""WebDataset tar shards and their indexes."""
