"""Which files there are: walking local and remote trees, resumable listings."""
