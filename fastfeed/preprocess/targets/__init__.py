"""Where shards are written to, and how files are committed atomically."""
