"""Construction of one shard in a worker."""
