"""What shard formats have in common: indexes, record formats, metadata columns.

base             ShardedSource: random access through an index of all samples
build_index      loads the index, or builds it in parallel; index is its file; external_indexes:
other tools' tar_headers, tf_example, tf_feature, protobuf, mds_file, mds_index, mds_values
record formats known_counts     samples that shards had before they were cut off; tfrecord_idx: the
list of DALI's tfrecord2idx labels           integer labels: names of classes, or their indices
extra_columns    per-sample metadata columns; notes collects remarks while a shard is scanned
"""
