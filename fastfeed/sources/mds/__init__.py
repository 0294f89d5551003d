"""Sources of MosaicML Streaming (MDS) shards."""
