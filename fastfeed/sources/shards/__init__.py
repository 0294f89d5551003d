"""What shard formats have in common: indexes, record formats, metadata columns."""
