"""Changes that read differently in PyTorch, JAX and TensorFlow; "" for any other program."""

from __future__ import annotations

_PINNED = "and send images as uint8: a quarter of the bytes of float32."
_CHANGES = {
    "more_loading": {
        "pytorch": "more workers while cores are free, else decode at reduced size or on the GPU.",
        "tensorflow": (
            "num_parallel_calls=tf.data.AUTOTUNE in every map() and prefetch(tf.data.AUTOTUNE) at"
            " the end, else decode on the GPU."
        ),
        "": "more decoding threads while cores are free, or decode on the GPU.",
    },
    "pageable": {
        "pytorch": f"Pin the host memory (pin_memory=True, non_blocking=True) {_PINNED}",
        "jax": f"Call jax.device_put for the next batch before this step is waited for, {_PINNED}",
        "tensorflow": f"End the dataset with tf.data.experimental.prefetch_to_device, {_PINNED}",
        "": f"Pin the host memory (PyTorch: pin_memory=True, non_blocking=True) {_PINNED}",
    },
    "prefetch": {
        "pytorch": (
            "Copy the next batch on its own stream during the current step (pin_memory=True, "
            "non_blocking=True), and send images as uint8."
        ),
        "jax": (
            "Call jax.device_put for the next batch before this step is waited for, and send images"
            " as uint8."
        ),
        "tensorflow": (
            "End the dataset with tf.data.experimental.prefetch_to_device, and send images as"
            " uint8."
        ),
        "": (
            "Copy the next batch on its own stream during the current step (prefetch to the"
            " device), and send images as uint8."
        ),
    },
    "launch": {
        "pytorch": (
            "Launch fewer, larger kernels: torch.compile, CUDA graphs, a fused optimizer, a larger"
            " batch."
        ),
        "jax": (
            "Launch fewer, larger kernels: one jax.jit around the whole step, lax.scan over several"
            " steps, a larger batch."
        ),
        "tensorflow": (
            "Launch fewer, larger kernels: jit_compile=True, steps_per_execution, a larger batch."
        ),
        "": (
            "Launch fewer, larger kernels: torch.compile, jax.jit or jit_compile=True, CUDA graphs,"
            " a larger batch."
        ),
    },
    "sync": {
        "pytorch": (
            "Read results less often: call .item(), .cpu() or print the loss every 50 steps instead"
            " of every step."
        ),
        "jax": (
            "Read results less often: call block_until_ready(), float() or jax.device_get() every"
            " 50 steps instead of every step; JAX runs ahead by itself."
        ),
        "tensorflow": (
            "Read results less often: call .numpy() or print the loss every 50 steps instead of"
            " every step; in Keras, steps_per_execution=50."
        ),
        "": (
            "Read results less often: copy them to the host (.item(), .numpy(), device_get) or"
            " print the loss every 50 steps instead of every step."
        ),
    },
    "alloc": {
        "pytorch": (
            "Reuse device memory: the caching allocator, no empty_cache() in the loop, batches of"
            " one shape (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
        ),
        "jax": (
            "Reuse device memory: leave XLA_PYTHON_CLIENT_PREALLOCATE on, give jax.jit"
            " donate_argnums, and keep batches of one shape."
        ),
        "tensorflow": (
            "Reuse device memory: batches of one shape (drop_remainder=True), and "
            "TF_GPU_ALLOCATOR=cuda_malloc_async where memory must grow."
        ),
        "": "Reuse device memory: a caching allocator, and batches of one shape.",
    },
    "checkpoint": {
        "pytorch": (
            "Save in the background (torch.distributed.checkpoint.async_save); evaluate and log"
            " less often."
        ),
        "jax": "Save in the background (orbax AsyncCheckpointer); evaluate and log less often.",
        "tensorflow": (
            "Save in the background (tf.train.CheckpointOptions(enable_async=True)); "
            "evaluate and log less often."
        ),
        "": "Save in the background; evaluate and log less often.",
    },
    "compile": {
        "pytorch": (
            "Keep shapes fixed and warm the compile cache (TORCHINDUCTOR_CACHE_DIR); exclude the"
            " first steps from the measurement."
        ),
        "jax": (
            "Keep shapes fixed and warm the compile cache (JAX_COMPILATION_CACHE_DIR); exclude the"
            " first steps from the measurement."
        ),
        "tensorflow": (
            "Keep shapes fixed (drop_remainder=True, an input_signature), so that nothing is traced"
            " again; exclude the first steps from the measurement."
        ),
        "": (
            "Keep shapes fixed and warm the compile cache; exclude the first steps from the"
            " measurement."
        ),
    },
    "unknown": {
        "pytorch": (
            "Record the host as well: PyTorch's profiler with CPU activity and with_stack=True, or"
            " nsys -t cuda,nvtx,osrt with NVTX ranges."
        ),
        "jax": (
            "Record the host as well: jax.profiler.ProfileOptions with host_tracer_level=2 and "
            "python_tracer_level=1."
        ),
        "tensorflow": (
            "Record the host as well: tf.profiler.experimental.ProfilerOptions(host_tracer_level=3,"
            " python_tracer_level=1)."
        ),
        "": (
            "Record the host as well: nsys -t cuda,nvtx,osrt with NVTX ranges, or PyTorch's"
            " profiler with CPU activity and with_stack=True."
        ),
    },
}


def change_in(framework: str, what: str) -> str:
    """The change in a program of this framework; `what` is a key of the table above."""
    changes = _CHANGES[what]
    return changes.get(framework, changes[""])
