"""TFRecord shards of tf.train.Example messages."""
