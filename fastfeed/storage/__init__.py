"""Bytes of files, local and remote: byte ranges, retries, hedged reads, a disk cache."""
