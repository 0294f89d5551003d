"""Which files there are: walking local and remote trees, kept and resumed listings."""
