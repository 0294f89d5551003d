"""MosaicML Streaming (MDS) shards."""
