"""The only place that imports training frameworks, each in its own module, loaded on demand.

keras            with keras_tensorflow, keras_epochs, keras_checks, keras_backup
tfdata, jax, torch            feeds for tf.data, JAX and PyTorch
prefetch_to_device            any iterable's batches, copied ahead
batch_tuples, device_convert, synchronize    shared by these
keras_watch, step_watch, lightning_watch, transformers_watch    callbacks that log waiting
watched, keras_watched, steps_only    other loaders than feeds
no_saving        refuses to save during `fastfeed prove`
"""
