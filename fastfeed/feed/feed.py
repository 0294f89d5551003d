"""The feed: reads a source, runs the ops and yields batches in the order of the plan."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from fastfeed.arguments import checked, checked_early
from fastfeed.backends.options import DecodeBy, GpuDecode
from fastfeed.distributed.world import World
from fastfeed.faults import FaultPolicy, Outage
from fastfeed.feed.config import FeedConfig, OpList
from fastfeed.feed.fields import Dataset, Field, Loader, Yields
from fastfeed.feed.iterator import BatchIterator
from fastfeed.feed.moved import moved
from fastfeed.feed.preview import feed_html
from fastfeed.feed.producer import PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.live.meter import FeedStats
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.guards import guarded
from fastfeed.sampling import Shuffle
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import Source


@checked
@guarded
@runs_on_gpu("feed")
class Feed:
    """Yields batches of augmented images, prepared ahead of the trainer.

    Each iteration yields one epoch, and the next iteration the next epoch, also if the last one was
    left early. After an error raised by the feed, the next iteration continues with the batch that
    failed. `state()` returns the position as a small JSON dictionary; `restore(state)` resumes from
    it at any world size.

    Args:
        source (Source): Where the samples come from, such as `ImageFolder("photos/train")`.
        ops (Sequence[Op | Callable] | Mapping[str, Sequence[Op | Callable]]): Ops to run on each
            sample, in order. A bare function is wrapped in `Function`. For a `Together` also a list
            for each image by name.
        batch (int | None): Samples per rank per step, >= 1. Default: None, from `global_batch`.
        global_batch (int | None): Samples per step over all ranks; give either this or `batch`.
            Default: None.
        seed (int): Seed of the shuffle and of all random ops, >= 0. Default: 0.
        world (World | None): Rank and world size. Default: None, as the launcher says.
        shuffle (str | bool | Order): "full" or True, "none" or False (the source's order), or an
            order such as `Blocks()`. Default: "full".
        tail (str): An incomplete last batch: "drop" leaves it out, "pad" divides its samples evenly
            among the ranks and fills it with others of weight 0. Default: "drop".
        threads (int | None): Threads of this rank, at least 1. Default: None, the cores this
            process may use, shared with the node's other ranks.
        prefetch (int): Batches to prepare ahead of the one in use, >= 0. Default: 2.
        decode (str | GpuDecode): "auto" and "cpu" use the native extension for JPEGs and most PNGs,
            and Pillow for the rest; "native" and "pillow" require that decoder. "gpu" uses DALI on
            this rank's GPU; "hybrid" splits JPEGs between GPU and CPU at a ratio measured in the
            first batches and saved for this machine. Default: "auto".
        backend (str | None): "cpu", "dali" or "nvjpeg". Default: None, "dali" for decode="gpu" and
            "hybrid", that of the engine of a `GpuDecode`, otherwise "cpu".
        on_bad (str | FaultPolicy): A sample that cannot be read or decoded: "substitute", "mask" or
            "raise". Default: "substitute".
        on_error (str | None): An exception in your own function: "raise" ends the iteration with
            it, "bad" marks the sample as bad. Default: None, "raise" or what a FaultPolicy says.
        outage (float | Outage): Storage that answers no read at all; a number is seconds to wait.
            Default: Outage().
        memory (int | None): Bytes that decoding may hold at once in this process; an image that
            needs more is decoded alone. Batches and files that were read come on top; `print(feed)`
            adds up. Default: None, 2 GiB until a feed is given another number.
        quarantine (str | os.PathLike[str] | None): File that lists bad samples; read first if it
            exists. Default: None.
        side_process (bool): Make batches in a helper process, for trainers that keep Python busy.
            Default: False.
        name (str): Name of this feed in timelines. Default: "".
        to_original (bool): Batches have the fields `transform`, float32 (n, 3, 3), from pixels of
            the image as displayed to the result's, and `original_size`, int64 (n, 2), its height
            and width: see `to_original`. Moves of functions are not in it. Default: False.

    Raises:
        ConfigError: If an argument is wrong. An op that cannot follow what comes before it is a
            SpecError.

    Example:
        >>> source = ff.Arrays(np.zeros((10, 8, 8, 3), np.uint8), np.arange(10))
        >>> feed = ff.Feed(source, [ff.RandomFlip(), ff.ToFloat()], batch=4, seed=1)
        >>> len(feed), [batch.images.shape for batch in feed]
        (2, [(4, 8, 8, 3), (4, 8, 8, 3)])
        >>> feed.seek(epoch=3, step=1)
        >>> feed.restore(feed.state())
        >>> [(batch.epoch, batch.step) for batch in feed.batches(epoch=5, start=1)]
        [(5, 1)]
        >>> list(feed.fields), feed.stats().batches, feed.close()
        (['image', 'label', 'weight', 'id'], 3, None)
    """

    def __init__(
        self,
        source: Source,
        ops: OpList | Mapping[str, OpList],
        *,
        batch: int | None = None,
        global_batch: int | None = None,
        seed: int = 0,
        world: World | None = None,
        shuffle: Shuffle | bool = "full",
        tail: Literal["drop", "pad"] = "drop",
        threads: int | None = None,
        prefetch: int = 2,
        decode: DecodeBy | GpuDecode = "auto",
        backend: Literal["cpu", "dali", "nvjpeg"] | None = None,
        on_bad: Literal["substitute", "mask", "raise"] | FaultPolicy = "substitute",
        on_error: Literal["raise", "bad"] | None = None,
        outage: float | Outage = Outage(),  # noqa: B008
        memory: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        side_process: bool = False,
        name: str = "",
        to_original: bool = False,
    ) -> None:
        config = FeedConfig.make(
            source,
            ops,
            batch=batch,
            global_batch=global_batch,
            seed=seed,
            world=world,
            shuffle=shuffle,
            tail=tail,
            threads=threads,
            prefetch=prefetch,
            decode=decode,
            backend=backend,
            on_bad=on_bad,
            on_error=on_error,
            outage=outage,
            memory=memory,
            quarantine=quarantine,
            side_process=side_process,
            name=name,
            to_original=to_original,
        )
        self._session = FeedSession(config)

    def __getattr__(self, name: str) -> Any:
        """Names that moved to the session, with a DeprecationWarning."""
        return moved(self, name, self._session)

    @property
    def plan(self) -> Plan:
        """The order of samples: batch size, ranks, steps per epoch."""
        return self._session.plan

    def __len__(self) -> int:
        """Steps per epoch, the same on every rank."""
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        """Iterate one epoch, from the position of `restore` or `seek` if that is inside it."""
        return self._session.placed(None)

    @checked_early
    def batches(
        self,
        epoch: int = 0,
        start: int = 0,
        epochs: int | None = 1,
        place: PlaceFunction | None = None,
        raw: bool = False,
    ) -> BatchIterator[Any]:
        """Batches from any position; this feed's own position does not change.

        Args:
            epoch (int): First epoch, counts from 0. Default: 0.
            start (int): First step within it. Default: 0.
            epochs (int | None): How many epochs; None never ends. Default: 1.
            place (Callable | None): Called with each batch by the thread that finished it, ahead of
                its turn; its result is yielded. Default: None, the batches.
            raw (bool): Images are uint8 HWC, not converted yet. Default: False.

        Returns:
            An iterator of batches.
        """
        return self._session.batches(epoch, start, epochs, place, raw)

    @checked_early
    def seek(self, epoch: int, step: int = 0) -> None:
        """Start the next iteration at this position.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch, in [0, len(feed)). Default: 0.
        """
        self._session.cursor.seek(epoch, step)

    @checked_early
    def state(self, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """Position after the last batch that was yielded, with the settings that it depends on.

        Args:
            at (tuple[int, int] | None): (epoch, step) to save instead, for trainers that count
                steps themselves. Default: None.

        Returns:
            Values that fit into JSON.

        Raises:
            ProofError: If a proof is measuring this feed's trainer.
        """
        return self._session.state(at)

    @checked_early
    def restore(self, state: dict[str, Any], strict: bool | Literal["ops"] = True) -> None:
        """Resume from a saved state with the same global batches, at any world size.

        Other ops, or another policy for bad samples, than the state was saved with are a warning
        that says which.

        Args:
            state (dict[str, Any]): What `state` returned.
            strict (bool | str): "ops" refuses other ops and policies. False accepts changed files
                (a repaired image changes the fingerprint) if there are as many as before. Default:
                True.

        Raises:
            StateError: If the state does not fit this feed; the text names the field.
        """
        self._session.restore(state, strict, stacklevel=4)

    @checked_early
    def set_weights(self, weights: Sequence[float] | np.ndarray) -> None:
        """Draw all following epochs by other weights, of a feed with `shuffle=ff.Weighted(...)`.

        Call it between two epochs, on all ranks with the same weights. They are part of `state`, so
        that a restored feed has them; a state that was saved before has the earlier ones. A helper
        process is started again.

        Args:
            weights (Sequence[float] | np.ndarray): One per sample, finite and >= 0, in any unit;
                kept as float32.

        Raises:
            ConfigError: If the weights are not such numbers, the feed has another order or stands
                within an epoch.
            FeedClosed: After `close`.

        Example:
            >>> source = ff.Arrays(np.zeros((4, 1, 1, 3), np.uint8), np.arange(4))
            >>> feed = ff.Feed(source, [], batch=4, shuffle=ff.Weighted(np.ones(4)))
            >>> feed.set_weights([0, 0, 1, 1])
            >>> np.bincount(next(iter(feed)).labels, minlength=4)
            array([0, 0, 2, 2])
        """
        self._session.set_weights(weights)

    def stats(self) -> FeedStats:
        """Throughput, wait time, time per stage and bad samples since the feed was created.

        Returns:
            The totals.
        """
        return self._session.stats()

    @property
    def fields(self) -> dict[str, Field]:
        """Fields of a batch by name, each with shape and dtype of one sample.

        No image is read; columns that a source reads with each sample have the type that some
        samples show.
        """
        return self._session.fields

    def __str__(self) -> str:
        """The plan, and the spec after every stage, as lines; no image is read."""
        return self._session.explain()

    def __repr__(self) -> str:
        return repr(self._session)

    def _repr_html_(self) -> str:
        """The plan, eight samples, and bad samples so far, for a notebook."""
        return feed_html(self._session)

    def close(self) -> None:
        """Stop the threads. `with`, garbage collection and interpreter exit do this as well."""
        self._session.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @checked_early
    @runs_on_gpu("keras")
    def to_keras(
        self, class_weight: Mapping[int, float] | None = None, yields: Yields | None = None
    ) -> Any:
        """Data for Keras's `fit`, `evaluate` and `predict`, with any Keras backend.

        Args:
            class_weight (Mapping[int, float] | None): Factor of the loss by label, 1 for labels
                that are not named; a soft label has the weighted mean of its classes' factors. Pass
                it here, not to `fit`, which would ignore it for a feed and is refused. Default:
                None.
            yields (str | tuple | list | dict | None): Names of fields that each item holds, in any
                nesting, such as ("image", "caption") or {"pixel_values": "image"}; `fields` lists
                them. The item is Keras's (x, y, sample_weight): inputs, targets, weights, each a
                field or several. Texts are tf.string, on TensorFlow alone. Default: None, (images,
                labels, weights), without weights if all are 1.

        Returns:
            A data set for Keras, one epoch per iteration.

        Raises:
            ConfigError: If class_weight is not a mapping of labels to finite factors of 0 or more,
                or if `yields` names a field that does not exist or does not fit, or lacks weights
                that padding or masked samples need.
            MissingExtra: If Keras is not installed.

        Example:
            >>> model.fit(feed.to_keras(), epochs=90)  # doctest: +SKIP
            >>> model.fit(feed.to_keras(class_weight={0: 1.0, 1: 2.5}))  # doctest: +SKIP
            >>> autoencoder.fit(feed.to_keras(yields=("image", "image")))  # doctest: +SKIP
        """
        adapter = importlib.import_module("fastfeed.adapters.keras.adapter")
        return adapter.to_keras(self._session, class_weight, yields)

    @checked_early
    @runs_on_gpu("tensorflow")
    def to_tfdata(self, device: str | None = None, yields: Yields | None = None) -> Dataset[Any]:
        """A `tf.data.Dataset` of one epoch per iteration.

        Args:
            device (str | None): "/GPU:0" prefetches two batches to that device. Default: None, in
                host memory.
            yields (str | tuple | list | dict | None): Names of fields that each item holds, in any
                nesting, such as ("image", "caption") or {"pixel_values": "image"}; `fields` lists
                them. Texts are tf.string; lists become tuples. Default: None, (images, labels),
                with weights if samples are masked or the source has weights.

        Returns:
            The data set.

        Raises:
            ConfigError: If TensorFlow has no such device, or if `yields` names a field that does
                not exist or does not fit, or lacks weights that masked samples need.
            MissingExtra: If TensorFlow is not installed.

        Example:
            >>> for images, labels in feed.to_tfdata():  # doctest: +SKIP
            ...     train_step(images, labels)
        """
        adapter = importlib.import_module("fastfeed.adapters.tfdata")
        return adapter.to_tfdata(self._session, device=device, yields=yields)

    @overload
    def to_jax(
        self, sharding: Any = ..., convert: str = ..., yields: tuple[str, ...] | None = ...
    ) -> Loader[tuple[Any, ...]]: ...
    @overload
    def to_jax(
        self, sharding: Any = ..., convert: str = ..., *, yields: dict[str, str]
    ) -> Loader[dict[str, Any]]: ...
    @overload
    def to_jax(
        self, sharding: Any = ..., convert: str = ..., yields: Yields = ...
    ) -> Loader[Any]: ...
    @checked_early
    @runs_on_gpu("jax")
    def to_jax(
        self, sharding: Any = None, convert: str = "auto", yields: Yields | None = None
    ) -> Any:
        """An iterable of `jax.Array`s, one epoch per iteration, prefetched to a device.

        Args:
            sharding (Any): A jax.Device, or a Sharding of the leading axis; one that spans
                processes yields global arrays, and where it leaves processes the same rows the feed
                needs `world=ff.World.of_mesh(mesh, axis)`. Default: None, this process's first
                device.
            convert (str): "device" runs Normalize, ToFloat and ToLayout on the device, so that only
                uint8 is copied; "host" runs them on the CPU; "auto" is "device" unless the device
                is the CPU. Default: "auto".
            yields (str | tuple | list | dict | None): Names of fields that each item holds, in any
                nesting, such as ("image", "caption") or {"pixel_values": "image"}; `fields` lists
                them. Texts are NumPy arrays of objects, of this process's samples. Default: None,
                (images, labels), with weights if samples are masked, padded or weighted.

        Returns:
            The iterable. It and its iterators have `get_state` and `set_state` as those of Grain.

        Raises:
            ConfigError: If the sharding does not divide the batch, or JAX runs other ranks than the
                feed, or if `yields` names a field that does not exist or does not fit, or lacks
                weights that padding or masked samples need.
            MissingExtra: If JAX is not installed.

        Example:
            >>> for images, labels in feed.to_jax():  # doctest: +SKIP
            ...     state = train_step(state, images, labels)
        """
        adapter = importlib.import_module("fastfeed.adapters.jax")
        return adapter.to_jax(self._session, sharding=sharding, convert=convert, yields=yields)

    @overload
    def to_torch(
        self, device: Any = ..., convert: str = ..., yields: tuple[str, ...] | None = ...
    ) -> Loader[tuple[Any, ...]]: ...
    @overload
    def to_torch(
        self, device: Any = ..., convert: str = ..., *, yields: dict[str, str]
    ) -> Loader[dict[str, Any]]: ...
    @overload
    def to_torch(
        self, device: Any = ..., convert: str = ..., yields: Yields = ...
    ) -> Loader[Any]: ...
    @checked_early
    @runs_on_gpu("torch")
    def to_torch(
        self, device: Any = None, convert: str = "auto", yields: Yields | None = None
    ) -> Any:
        """An iterable of tensors, one epoch per iteration, prefetched to a device.

        Images are (n, height, width, channels); with `ToLayout("CHW")` among the ops (n, channels,
        height, width), as PyTorch's own models take them. The result has `state_dict()`,
        `load_state_dict()` and what trainers ask a `DataLoader` for.

        Args:
            device (Any): A torch.device or its name. Default: None, this rank's GPU.
            convert (str): "device" runs Normalize, ToFloat and ToLayout on the device, so that only
                uint8 is copied; "host" runs them on the CPU; "auto" is "device" unless the device
                is the CPU. Default: "auto".
            yields (str | tuple | list | dict | None): Names of fields that each item holds, in any
                nesting, such as ("image", "caption") or {"pixel_values": "image"}; `fields` lists
                them. Texts are lists of str. Default: None, (images, labels), with weights if
                samples are masked or the source has weights.

        Returns:
            The iterable.

        Raises:
            ConfigError: If PyTorch has no such device, or torch.distributed runs other ranks than
                the feed, or if `yields` names a field that does not exist or does not fit, or lacks
                weights that masked samples need.
            MissingExtra: If PyTorch is not installed.

        Example:
            >>> for images, labels in feed.to_torch("cuda"):  # doctest: +SKIP
            ...     loss = criterion(model(images), labels)
            >>> for batch in feed.to_torch(yields={"pixel_values": "image"}):  # doctest: +SKIP
            ...     loss = model(**batch).loss
        """
        adapter = importlib.import_module("fastfeed.adapters.torch")
        return adapter.to_torch(self._session, device=device, convert=convert, yields=yields)
