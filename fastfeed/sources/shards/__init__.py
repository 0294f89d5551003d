"""Parts shared by shard formats: indexes, labels, metadata columns."""
