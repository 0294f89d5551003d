"""Names of other libraries and their equivalents here, for errors about unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LOADER = "ff.Feed(source, ops, batch=256).to_torch()"
_NAMES = {  # torchvision, PyTorch, Keras, tf.data, Albumentations, DALI, WebDataset
    "Compose": (
        "a plain list: ff.Feed(source, [op, op], batch=...), or ff.Sequential inside of another op"
    ),
    "RandomHorizontalFlip": "ff.RandomFlip()",
    "RandomVerticalFlip": 'ff.RandomFlip(direction="vertical")',
    "HorizontalFlip": "ff.RandomFlip()",
    "VerticalFlip": 'ff.RandomFlip(direction="vertical")',
    "Flip": 'ff.RandomFlip(direction="both")',
    "ToTensor": 'ff.ToFloat() and ff.ToLayout("CHW"), and feed.to_torch()',
    "ToTensorV2": 'ff.ToLayout("CHW"), and feed.to_torch()',
    "PILToTensor": 'ff.ToLayout("CHW"), and feed.to_torch()',
    "ToImage": "nothing: images are decoded by the feed",
    "ToPILImage": "nothing: images are arrays",
    "ToDtype": "ff.ToFloat()",
    "ConvertImageDtype": "ff.ToFloat()",
    "Rescaling": "ff.ToFloat()",
    "Normalization": "ff.Normalize(mean, std)",
    "per_image_standardization": "ff.Standardize()",
    "StandardizeImage": "ff.Standardize()",
    "RandomRotation": "ff.Rotate(degrees, border=, expand=)",
    "RandomAffine": "ff.Affine(degrees, translate=, scale=, shear=)",
    "ShiftScaleRotate": "ff.Affine(degrees, translate=, scale=)",
    "RandomTranslation": "ff.Affine(0, translate=(height, width))",
    "RandomZoom": "ff.Affine(0, scale=(low, high))",
    "RandomShear": "ff.Affine(0, shear=degrees)",
    "RandomIoUCrop": "ff.IoUCrop(), and ff.Resize((height, width)) behind it",
    "RandomShortestSize": "ff.RandomResize((lowest, highest), longest=)",
    "ScaleJitter": "ff.RandomResize((height, width), scale=(0.1, 2.0))",
    "ResizeScale": "ff.RandomResize((height, width), scale=(0.1, 2.0))",
    "FixedSizeCrop": 'ff.RandomCrop(size, pad_if_needed="corner")',
    "RandomZoomOut": "ff.ZoomOut(p, scale), and ff.Resize((height, width)) behind it",
    "LetterBox": 'ff.Resize((height, width), fit="pad", fill=(114, 114, 114))',
    "RandomPerspective": "ff.Perspective(distortion, p=)",
    "RandomChannelPermutation": "ff.ChannelShuffle()",
    "RandomInvert": "ff.Maybe(ff.Invert(), p=0.5)",
    "RandomPosterize": "ff.Maybe(ff.Posterize(bits), p=0.5)",
    "RandomSolarize": "ff.Maybe(ff.Solarize(threshold), p=0.5)",
    "RandomAutocontrast": "ff.Maybe(ff.AutoContrast(), p=0.5)",
    "RandomEqualize": "ff.Maybe(ff.Equalize(), p=0.5)",
    "RandomAdjustSharpness": "ff.Maybe(ff.Sharpness((factor, factor)), p=0.5)",
    "RandomBrightness": "ff.Brightness(amount)",
    "RandomContrast": "ff.Contrast(amount)",
    "RandomHue": "ff.Hue(amount)",
    "RandomSaturation": "ff.Saturation(amount)",
    "RandomGaussianBlur": "ff.Maybe(ff.GaussianBlur(kernel), p=0.5)",
    "RandomApply": "ff.Maybe(op, p=) around each op, or around ff.Sequential([op, op])",
    "RandomOrder": (
        "ff.ColorJitter, which shuffles its four; other ops run in the order of the list"
    ),
    "Lambda": (
        "your function itself in the list of ops, or ff.Function(function); for labels and columns"
        ' ff.Map(function, "label", out="label")'
    ),
    "MapTransform": 'ff.Map(function, "caption", out="tokens") among the ops',
    "Cutout": "ff.CutOut(size)",
    "CoarseDropout": "ff.RandomErasing(p)",
    "RandomCutout": "ff.RandomErasing(p)",
    "DataLoader": _LOADER,
    "create_loader": "ff.timm.create_loader(dataset, input_size, batch_size)",
    "IterableDataset": "a source, such as ff.TarShards(...)",
    "Dataset": "ff.Mapped(dataset), ff.HuggingFace(dataset) or ff.Files(paths, labels)",
    "MapDataset": "ff.Mapped(dataset)",
    "TensorDataset": "ff.Arrays(images, labels)",
    "from_tensor_slices": "ff.Files(paths, labels) or ff.Arrays(images, labels)",
    "load_dataset": 'ff.HuggingFace("hf://datasets/user/name", split="train"), or its folder',
    "load_from_disk": "ff.HuggingFace(folder)",
    "flow_from_dataframe": "ff.keras.flow_from_dataframe(frame)",
    "DataFrameIterator": 'ff.Table(frame, image="path", label="label")',
    "CIFAR10": "ff.Arrays.cifar(folder)",
    "CIFAR100": "ff.Arrays.cifar(folder)",
    "MNIST": "ff.Arrays.mnist(folder)",
    "FashionMNIST": "ff.Arrays.mnist(folder)",
    "DatasetFolder": "ff.ImageFolder(root)",
    "StackDataset": 'ff.Together({"left": source, "right": source})',
    "ReplayCompose": 'ff.Together({"left": source, "right": source}), which crops images alike',
    "ImageFolderDataset": "ff.ImageFolder(root)",
    "WebDataset": "ff.TarShards(...)",
    "TFRecordDataset": "ff.TFRecords(...)",
    "builder_from_directory": "ff.TFRecords.from_tfds(folder)",
    "StreamingDataset": "ff.MDSShards(...)",
    "image_dataset_from_directory": "ff.keras.image_dataset_from_directory(root)",
    "MultiLabelBinarizer": 'label_kind="multi", of ff.Table and other sources',
    "DistributedSampler": "nothing: ranks are detected, or Feed(..., world=ff.World(rank, size))",
    "MPerClassSampler": "Feed(..., shuffle=ff.ClassBatches(classes, per_class))",
    "RASampler": (
        "Feed(..., shuffle=ff.Repeated(3, together=True, length=len(source))), repeated augmentation"
    ),
    "RepeatAugSampler": (
        "Feed(..., shuffle=ff.Repeated(3, together=True, length=len(source))), repeated augmentation"
    ),
    "WeightedRandomSampler": "Feed(..., shuffle=ff.Weighted(weights))",
    "RandomSampler": 'nothing: Feed(..., shuffle="full") is the default',
    "SequentialSampler": "Feed(..., shuffle=False)",
    "SubsetRandomSampler": "ff.take(source, ids)",
    "Subset": "ff.take(source, ids)",
    "random_split": 'ff.split(source, {"train": 0.8, "val": 0.2}, by="random")',
    "train_test_split": 'ff.split(source, {"train": 0.8, "test": 0.2})',
    "KFold": "ff.folds(source, 5)",
    "StratifiedKFold": 'ff.folds(source, 5, by="stratified")',
    "Pipeline": "ff.Feed(source, ops, batch=256)",
    "pipeline_def": "ff.Feed(source, ops, batch=256)",
    "transforms": "the ops themselves, which are names of fastfeed: ff.RandomFlip()",
}
_OPTIONS = {
    "batch_size": "batch=, the samples of one rank, or global_batch=, those of all ranks",
    "drop_last": 'tail="drop", the default, or tail="pad", which keeps the incomplete batch',
    "last_batch_policy": 'tail="drop" or tail="pad"',
    "num_workers": (
        "threads=; a feed needs no worker processes, and takes all cores of its rank by default"
    ),
    "workers": "threads=",
    "num_threads": "threads=",
    "num_parallel_calls": "threads=",
    "sampler": (
        "shuffle=: ff.Weighted(weights), ff.Balanced(), ff.CustomOrder(function); ranks are detected,"
        " or world="
    ),
    "batch_sampler": "shuffle= and batch=, such as shuffle=ff.ClassBatches(classes, per_class)",
    "transform": "the list of ops, which is the second argument",
    "transforms": "the list of ops, which is the second argument",
    "augmentations": "the list of ops, which is the second argument",
    "dataset": "the source, which is the first argument",
    "prefetch_factor": "prefetch=, batches ahead",
    "buffer_size": "prefetch=, batches ahead; shuffling needs no buffer",
    "shuffle_buffer": 'shuffle="full", which needs no buffer, or shuffle=ff.Blocks(window=4)',
    "pin_memory": "nothing: feed.to_torch() copies from page-locked memory",
    "persistent_workers": "nothing: threads live as long as the feed",
    "worker_init_fn": "nothing: random numbers depend on seed=, the epoch and the sample",
    "generator": "seed=",
    "random_state": "seed=",
    "collate_fn": "ff.Map(function, ...) among the ops; batches are arrays",
    "multiprocessing_context": "nothing: there are no worker processes",
    "timeout": "outage=, seconds to wait for storage",
    "rank": "world=ff.World(rank, size)",
    "num_replicas": "world=ff.World(rank, size)",
    "world_size": "world=ff.World(rank, size)",
    "shard_id": "world=ff.World(rank, size)",
    "num_shards": "world=ff.World(rank, size)",
    "device": "feed.to_torch(device), feed.to_jax(sharding) or feed.to_tfdata(device)",
    "image_size": "ff.Resize((height, width)) among the ops",
    "class_mode": 'label_kind of the source: "value", "multi" or "text"; "name" is of one class',
    "label_mode": 'label_kind of the source: "value", "multi" or "text"; "name" is of one class',
    "target_transform": "ff.Map(function, ...) or ff.OneHot() among the ops",
    "validation_split": "ff.split(source, keras_split=0.2, seed=0), before the feed",
}


def name_hint(name: str, known: Iterable[str]) -> str:
    """End of a sentence that names the equivalent of an unknown name; empty if none is close."""
    if name in _NAMES:
        return f"; write {_NAMES[name]}"
    return _close(name, known, "ff.")


def option_hint(option: str, known: Iterable[str]) -> str:
    """End of a sentence that names the equivalent of an unknown argument."""
    known = list(known)
    if option in _OPTIONS and option not in known:
        words = _OPTIONS[option]
        names = {
            word.rstrip(":,.").partition("=")[0]
            for word in words.split()
            if "=" in word and "(" not in word
        }
        if not names or names & {*known}:
            return f"; write {words}"
    return _close(option, known, "")


def _close(name: str, known: Iterable[str], before: str) -> str:
    """The known name that this one was meant to be."""
    lower = {other.lower().replace("_", ""): other for other in known}
    found = get_close_matches(name.lower().replace("_", ""), lower, n=1, cutoff=0.8)
    return f"; write {before}{lower[found[0]]}" if found else ""
