"""Where shards go, and how files there come to be whole."""
