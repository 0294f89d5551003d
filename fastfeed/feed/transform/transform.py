"""The ops of a feed as a function of items: in other loaders, and in servers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from fastfeed.arguments import checked, checked_early
from fastfeed.errors import ConfigError, SampleError
from fastfeed.feed.config import OpList
from fastfeed.feed.fields import Yields
from fastfeed.feed.session import FeedSession
from fastfeed.feed.transform.batches import make_batch
from fastfeed.feed.transform.config import Device, TransformConfig
from fastfeed.feed.transform.items import as_list, kind
from fastfeed.feed.transform.pipeline import LazyPipeline
from fastfeed.feed.transform.saved import compare, load_transform, save_transform
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.base import Op
from fastfeed.ops.evaluation import evaluation
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate
from fastfeed.sources.annotations.keypoints import checked_pairs, checked_rules
from fastfeed.spec import ENCODED, Spec

_FIRST = np.zeros(1, np.int64)


@checked
@runs_on_gpu("nvjpeg")
class Transform:
    """The ops of a feed as a function: bytes, paths, arrays or PIL images in, a batch out.

    For loaders that you keep and for servers: the same ops give the same pixels as in a `Feed`. Any
    number of threads may call it at once. It pickles without its threads, which start with the
    first call in each process, a forked one too.

    Args:
        ops (Sequence[Op | Callable]): Ops to run on each item, in order. A bare function is wrapped
            in `Function`. Ops that mix samples are refused.
        seed (int): Seed of random ops, >= 0, unless a call gives one. Default: 0.
        threads (int | None): Threads of one call, at least 1; the thread that calls is one of them.
            Default: None, the cores that this process may use; 1 in a worker of a loader.
        decode (str): "auto", "native" or "pillow", as for `Feed`. Default: "auto".
        device (str): "cpu", or "cuda" for the JPEG engine of a GPU. Default: "cpu".
        classes (int): Number of classes, for label ops that do not say it; 0 if unknown. Default: 0.
        memory (int | None): Bytes that decoding may hold at once in this process. Default: None, 2
            GiB until a feed or transform is given another number.
        input_spec (Spec): Shape of items that are pixels, such as
            Spec((28, 28, 1), "uint8", "HWC"); files are refused then. Default: files, and images of
            any size, which become RGB.
        flip_pairs (Sequence[tuple[int, int]] | None): Keypoints that trade places in a mirrored
            image, as for `Objects`. Default: None, not known.
        min_size (float): As for `Objects`. Default: 1.0.
        min_area (float): As for `Objects`. Default: 0.0.
        min_visible (float): As for `Objects`. Default: 0.1.
        to_original (bool): Batches have the fields `transform` and `original_size`, as of `Feed`.
            Default: False.

    Raises:
        ConfigError: If an argument is wrong. Ops whose images have no one size, or that mix
            samples, are a SpecError.

    Example:
        >>> transform = ff.Transform([ff.Resize((2, 2)), ff.ToFloat()])
        >>> images = [np.zeros((4, 6, 3), np.uint8), np.full((8, 8), 255, np.uint8), b"no image"]
        >>> batch = transform(images)
        >>> batch.images.shape, batch.images[:, 0, 0, 0], batch.weights
        ((3, 2, 2, 3), array([0., 1., 0.], dtype=float32), array([1., 1., 0.], dtype=float32))
        >>> print(batch.bad[2])
        items[2]: not_image (it is text)
        >>> transform.one(images[1]).shape, transform.close()
        ((2, 2, 3), None)
    """

    def __init__(
        self,
        ops: OpList,
        *,
        seed: int = 0,
        threads: int | None = None,
        decode: str = "auto",
        device: Device = "cpu",
        classes: int = 0,
        memory: int | None = None,
        input_spec: Spec = ENCODED,
        flip_pairs: Sequence[tuple[int, int]] | None = None,
        min_size: float = 1.0,
        min_area: float = 0.0,
        min_visible: float = 0.1,
        to_original: bool = False,
    ) -> None:
        rules = {"min_size": min_size, "min_area": min_area, "min_visible": min_visible}
        pairs = checked_pairs("Transform", flip_pairs)
        self._begin(
            TransformConfig(
                ops,
                seed=seed,
                threads=threads,
                decode=decode,
                device=device,
                classes=classes,
                memory=memory,
                input_spec=input_spec,
                objects=checked_rules("Transform", **rules)._replace(flip_pairs=pairs),
                to_original=to_original,
            )
        )

    def _begin(self, config: TransformConfig) -> None:
        self._config = config
        self._pipeline = LazyPipeline(config)

    @classmethod
    def of(cls, feed: Any) -> Transform:
        """The ops of a feed for items that come from elsewhere, with its seed and classes.

        With `ids` it makes the same bytes as the feed on a CPU does for the samples, of whole
        images: a source that cuts parts out of them has done so before the ops. Ops that mix
        samples are left out, since they belong to a batch.

        Args:
            feed (Feed): The feed.

        Returns:
            The transform; its threads start with the first call.

        Raises:
            ConfigError: If this is no feed, or one whose samples have several images.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [ff.ToFloat()], batch=2)
            >>> ff.Transform.of(feed), feed.close()
            (Transform([ToFloat(dtype='float32')]) -> HWC float32[8, 8, 3], None)
        """
        return of_config(TransformConfig.of_feed(FeedSession.of(feed).config))

    @property
    def ops(self) -> list[Op]:
        """The ops, in the order they run."""
        return list(self._config.ops)

    @property
    def spec(self) -> Spec:
        """Shape, dtype and layout of one image of a batch."""
        return self._config.program.spec

    @property
    def random(self) -> bool:
        """True if ops draw random numbers: calls need `ids` or `rng`."""
        return self._config.random

    @property
    def evaluation(self) -> Transform:
        """The same transform without random ops, for validation and serving: `ff.evaluation`."""
        return of_config(replace(self._config, ops=evaluation(self._config.ops)))

    def __call__(
        self,
        items: Sequence[Any],
        *,
        fields: Mapping[str, Any] | None = None,
        ids: Sequence[int] | np.ndarray | None = None,
        epoch: int = 0,
        seed: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Batch:
        """Make a batch of the items. A bad item is an entry of `batch.bad`, never an exception.

        Args:
            items (Sequence[Any]): n items of any of these kinds: the bytes of an encoded file
                (bytes, bytearray, memoryview or a 1-D uint8 array), the path of a local file, a
                uint8 array (height, width) or (height, width, 1, 3 or 4), a PIL image; with
                Decode(dtype="uint16") or "float32" instead of the last two, an array of these.
            fields (Mapping[str, Any] | None): n values by name: "label"; "boxes" with "box_labels",
                lists of arrays (k, 4): left, top, right, bottom in pixels of the displayed image,
                and (k,); "masks", a list of uint8 arrays (height, width), or bytes or paths of
                PNGs; "keypoints", arrays (k, points, 3): x, y, visibility; "instance_masks", as of
                `Objects`, or "polygons", lists of rings; these with or without boxes; other names
                are columns. All move with the pixels, and reach `Function`, `Map` and the batch as
                in a feed. Default: None.
            ids (Sequence[int] | np.ndarray | None): An integer >= 0 per item, `batch.ids`: random
                ops draw what a feed draws for samples with these ids. Default: None, 0 to n - 1.
            epoch (int): Epoch of these random numbers, in [0, 2**32). Default: 0.
            seed (int | None): Their seed. Default: None, that of the transform.
            rng (np.random.Generator | None): Source of random numbers in place of `ids`, `epoch`
                and `seed`. Default: None.

        Returns:
            The batch, of n rows. Rows of bad items are black, with weight 0 and their failure in
            `bad`.

        Raises:
            ConfigError: If an argument is wrong, or if random ops have neither `ids` nor `rng`.
            FeedClosed: If the transform is closed.
            SampleError: If a `Map` raises.
            MemoryError: If there is no memory for an image.
        """
        return self._make(items, fields, ids, epoch, seed, rng)

    def one(
        self,
        item: Any,
        *,
        id: int | None = None,
        epoch: int = 0,
        seed: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Make the image of one item.

        Args:
            item (Any): An item, as a call takes several.
            id (int | None): Its id, for random ops. Default: None.
            epoch (int): As for a call. Default: 0.
            seed (int | None): As for a call. Default: None.
            rng (np.random.Generator | None): As for a call. Default: None.

        Returns:
            The image, of the shape and dtype of `spec`; several where ops make views.

        Raises:
            SampleError: If the item is bad; the text says why, and `failure` is its Failure.
            ConfigError: As for a call.
        """
        is_alone = (id, epoch, seed, rng) == (None, 0, None, None) and not self.random
        if is_alone and self._config.is_plain and kind(item) == "file":
            made = self._pipeline.open().files([item], "file", _FIRST, [])
            if made is not None and not made[1]:
                return made[0][0]
        ids = None if id is None else [id]
        batch = self([item], ids=ids, epoch=epoch, seed=seed, rng=rng)
        if batch.bad:
            raise SampleError(str(batch.bad[0]), failure=batch.bad[0])
        return batch.images[0]

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the ops and what their pixels depend on as JSON, to be kept with a model.

        The file has a check of pixels, unless `Function` or `Map` are among the ops: see
        [the format](../guides/production.md#saved-with-the-model). It is committed by atomic rename
        after fsync.

        Args:
            path (str | os.PathLike[str]): The file, in a folder that exists.

        Raises:
            ConfigError: If a function has no import path, or the file cannot be written.

        Example:
            >>> transform = ff.Transform(ff.recipes.imagenet_eval(224))
            >>> transform.save("preprocessing.json")
            >>> ff.Transform.load("preprocessing.json").ops == transform.ops
            True
        """
        with of_config(replace(self._config, threads=1, device="cpu")) as copy:
            save_transform(path, self._config, copy)

    @classmethod
    @checked_early
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        decode: str = "auto",
        device: Device = "cpu",
        memory: int | None = None,
        allow_functions: bool = False,
    ) -> Transform:
        """Load a transform that `save` wrote; refused if its pixels would be others here.

        Args:
            path (str | os.PathLike[str]): The file.
            threads (int | None): As for `Transform`. Default: None.
            decode (str): As for `Transform`. Default: "auto".
            device (str): As for `Transform`; pixels are checked on the CPU. Default: "cpu".
            memory (int | None): As for `Transform`. Default: None.
            allow_functions (bool): Import the functions that the file names, which runs code;
                otherwise a file that names one is refused. Default: False.

        Returns:
            The transform.

        Raises:
            ConfigError: If the file cannot be read, is not such a file or of a newer version, names
                a function that is not allowed, or would give other pixels than where it was saved.

        Example:
            >>> ff.Transform([ff.Resize((8, 8))]).save("preprocessing.json")
            >>> ff.Transform.load("preprocessing.json", threads=1).one(np.zeros((9, 9), np.uint8)).shape
            (8, 8, 3)
        """
        arguments, check = load_transform(path, allow_functions)
        more: dict[str, Any] = {"decode": decode, "memory": memory}
        try:
            transform = cls(**arguments, **more, threads=threads, device=device)
        except ConfigError as error:
            raise type(error)(f"{os.fspath(path)}: {error}", field=error.field) from error
        if check is not None:
            with cls(**arguments, **more, threads=1) as copy:
                compare(path, check, copy._config, copy)
        return transform

    @checked
    def to_keras_layer(self, size: int | tuple[int, int] | None = None) -> Any:
        """Make a Keras layer of the ops that are exact on bytes: the same bits in the model.

        It takes uint8 (n, height, width, channels): images after the crops and resizes at the front
        of the list, or whole images. [Which ops](../guides/production.md#in-the-models-graph).

        Args:
            size (int | tuple[int, int] | None): (height, width) of whole images, which are cropped
                and padded in the graph, never resized. Default: None, images after that geometry.

        Returns:
            The `keras.layers.Layer`. A saved model loads where fastfeed is installed and its
            ops mean the same.

        Raises:
            ConfigError: If an op cannot be exported, by its name.
            MissingExtra: If Keras is not installed.

        Example:
            >>> layer = ff.Transform(ff.recipes.imagenet_eval(224)).to_keras_layer()  # doctest: +SKIP
            >>> images = keras.Input((224, 224, 3), dtype="uint8")  # doctest: +SKIP
            >>> model = keras.Model(images, trained(layer(images)))  # doctest: +SKIP
        """
        adapter = importlib.import_module("fastfeed.adapters.export.keras_layer")
        return adapter.to_keras_layer(self._config, size)

    @checked
    def export_onnx(
        self, path: str | os.PathLike[str], size: int | tuple[int, int] | None = None
    ) -> None:
        """Write the ops that are exact on bytes as an ONNX graph from `images` to `pixels`.

        Args:
            path (str | os.PathLike[str]): The file, in a folder that exists.
            size (int | tuple[int, int] | None): As for `to_keras_layer`. Default: None.

        Raises:
            ConfigError: If an op cannot be exported, by its name, or the file cannot be written.
            MissingExtra: If ONNX is not installed.

        Example:
            >>> ff.Transform(ff.recipes.imagenet_eval(224)).export_onnx("pixels.onnx")  # doctest: +SKIP
        """
        adapter = importlib.import_module("fastfeed.adapters.export.onnx_file")
        adapter.export_onnx(path, self._config, size)

    def tf(
        self,
        items: Any,
        fields: Any = None,
        *,
        ids: Any = None,
        epoch: Any = 0,
        yields: Yields | None = None,
    ) -> Any:
        """Make a batch of tensors in TensorFlow: `dataset.batch(n).map(transform.tf)`.

        Python is called once per batch, also inside a `tf.function`; shapes are known before. It
        runs in this process and cannot be saved with a graph.

        Args:
            items (tf.Tensor): n encoded files, tf.string (n,), such as `tf.io.read_file` gives, or
                pixels, tf.uint8 (n, height, width, channels).
            fields (tf.Tensor | Mapping[str, tf.Tensor] | None): Labels, or n values by name, as for
                a call, without boxes. Default: None, none.
            ids (tf.Tensor | None): As for a call, (n,). Default: None.
            epoch (tf.Tensor | int): As for a call. Default: 0.
            yields (str | tuple | list | dict | None): Names of fields of the batch, in any nesting;
                lists become tuples. Default: None, images, or (images, labels).

        Returns:
            The tensors. A bad item is an error when the batch is made, unless `yields` names
            "weight": its image is black then, with weight 0.

        Raises:
            ConfigError: If an argument is wrong, or if random ops have no `ids`.
            MissingExtra: If TensorFlow is not installed.

        Example:
            >>> files = tf.data.Dataset.from_tensor_slices((paths, labels))  # doctest: +SKIP
            >>> data = files.map(lambda path, label: (tf.io.read_file(path), label))  # doctest: +SKIP
            >>> model.fit(data.batch(64).map(transform.tf, tf.data.AUTOTUNE))  # doctest: +SKIP
        """
        adapter = importlib.import_module("fastfeed.adapters.tfdata")
        return adapter.tf_transform(self, self._config.program, items, fields, ids, epoch, yields)

    setattr(tf, "autograph_info__", None)  # noqa: B010  TensorFlow's AutoGraph leaves it as it is

    def torch(
        self,
        items: Sequence[Any],
        *,
        fields: Mapping[str, Any] | None = None,
        ids: Sequence[int] | np.ndarray | None = None,
        epoch: int = 0,
        seed: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Batch:
        """Make a batch of tensors in PyTorch, for `collate_fn` or `__getitems__`.

        In a worker of a `DataLoader`, images are made in memory that it shares with the trainer's
        process, as `default_collate` makes them, so they are not copied.

        Args:
            items (Sequence[Any]): As for a call.
            fields (Mapping[str, Any] | None): As for a call. Default: None.
            ids (Sequence[int] | np.ndarray | None): As for a call. Default: None.
            epoch (int): As for a call. Default: 0.
            seed (int | None): As for a call. Default: None.
            rng (np.random.Generator | None): As for a call. Default: None.

        Returns:
            The batch of a call, with tensors in place of arrays. Texts and other objects stay
            arrays. `dict(batch)` has the tensors by name.

        Raises:
            ConfigError: As for a call, or if PyTorch has no tensors of a column's dtype.
            MemoryError: As for a call, or if there is no shared memory for the images.
            MissingExtra: If PyTorch is not installed.

        Example:
            >>> def collate(ids):  # doctest: +SKIP
            ...     batch = transform.torch([paths[i] for i in ids], ids=ids)
            ...     return batch.images, batch.weights
            >>> loader = DataLoader(range(len(paths)), 64, collate_fn=collate)  # doctest: +SKIP
        """
        adapter = importlib.import_module("fastfeed.adapters.torch")
        make = partial(self._make, items, fields, ids, epoch, seed, rng)
        return adapter.torch_transform(make)

    def close(self) -> None:
        """End the threads. `with`, garbage collection and interpreter exit do this as well."""
        self._pipeline.close()

    def __enter__(self) -> Transform:
        """Open the threads, which otherwise the first call does."""
        self._pipeline.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return of_config, (self._config,)

    def __repr__(self) -> str:
        return f"Transform({self.ops!r}) -> {self.spec}"

    def __iter__(self) -> NoReturn:
        raise ConfigError("a Transform is called with a list of items: batch = transform(items)")

    def _make(
        self,
        items: Sequence[Any],
        fields: Mapping[str, Any] | None,
        ids: Any,
        epoch: int,
        seed: int | None,
        rng: np.random.Generator | None,
        allocate: Allocate | None = None,
    ) -> Batch:
        """The batch of a call; `allocate`: memory of its images."""
        pipeline = self._pipeline.open()
        batch = make_batch(
            self._config, pipeline, as_list(items), fields, ids, epoch, seed, rng, allocate
        )
        self._pipeline.check_open()  # rows may be missing
        return batch


def of_config(config: TransformConfig) -> Transform:
    """A transform of checked arguments; its threads start with the first call."""
    transform = Transform.__new__(Transform)
    transform._begin(config)
    return transform
