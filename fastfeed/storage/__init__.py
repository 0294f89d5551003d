"""Bytes of files, local and remote: byte ranges, retries, hedged reads, a disk cache.

storage          reads many ranges at once from any fsspec file system; range_reads does the work of
one read endpoints        connects to the file systems behind addresses; clients and s3 have the
settings of each provider filesystem       calls file systems in fsspec's event loop (event_loop),
or in threads retry            attempts, deadline and hedged requests of one read; request_limit
bounds how many run at once health           whether an endpoint answers at all disk_cache
remote objects in chunks (chunk_files, disk_quota); cached_reads reads through it expand
turns paths, patterns and folders into files; shard_files reads ranges of a fixed list of them
byte_range, pending, local_file, lazy_bytes    ranges, reads in progress, whole files, bytes that
stay in their file fingerprint      identifies a data set; byte_sizes parses sizes such as "500GB"
"""
