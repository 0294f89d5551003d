"""`fastfeed demo`: train a Keras model on a folder of images, and show how well the feed kept up."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from fastfeed.cli.screen.help import option
from fastfeed.cli.screen.streams import Console
from fastfeed.errors import ConfigError
from fastfeed.faults import REASONS
from fastfeed.printable import plural

if TYPE_CHECKING:
    from fastfeed.feed.feed import Feed


def demo(
    data: Annotated[
        Path | None,
        option(
            "DIR", "train/ and val/, each with one folder per class. Default: generated images."
        ),
    ] = None,
    work: Annotated[
        Path, option("DIR", "Folder for generated photographs and the list of bad files.")
    ] = Path(".fastfeed-demo"),
    epochs: Annotated[
        int | None, option("N", "Epochs. Default: depends on the number of images.", min=1)
    ] = None,
    batch: Annotated[int | None, option("N", "Images per training step.", min=1)] = None,
    backend: Annotated[
        str, option("NAME", "Backend that decodes and augments: cpu, dali or nvjpeg.")
    ] = "cpu",
    seed: Annotated[
        int, option("N", "Seed of the sample order, the augmentation and the weights.")
    ] = 0,
) -> None:
    """Train a small classifier, and show where the time went.

    Trains on photographs with Keras, from files to validation accuracy.

    Examples:
        fastfeed demo                                    # generated photographs
        fastfeed demo --data photos/ --epochs 5          # photos/train, photos/val
        fastfeed demo --backend dali                     # decodes on the GPU
    """
    console = Console()
    began = time.monotonic()
    root = _checked(data) if data is not None else _generated(work / "photos", console)
    with console.status("loading Keras ..."), _quiet():
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        import keras

        from fastfeed.demo import classifier
        from fastfeed.feed.session import FeedSession
    keras.utils.set_random_seed(seed)
    train, val = _feeds(root, work, batch or classifier.BATCH, backend, seed)
    console.plain(str(train))
    epochs = epochs or classifier.epochs_for(train.plan.length)
    model = classifier.build(
        len(FeedSession.of(train).source.classes), classifier.IMAGE_SIZE, epochs * len(train)
    )
    console.plain(
        f"\nA CNN of {model.count_params():,} parameters on Keras {keras.__version__} with"
        f" {keras.backend.backend()}: {plural(epochs, 'epoch')} of {len(train)} steps\n"
    )
    with train, val:
        try:
            history = model.fit(
                train.to_keras(),
                validation_data=val.to_keras(),
                epochs=epochs,
                verbose=1 if console.is_terminal else 2,
            ).history
        except Exception as error:  # TensorFlow wraps ours in one with a graph's trace
            errors = (FeedSession.of(feed).cursor.error for feed in (train, val))
            if ours := next(filter(None, errors), None):
                raise ours from error
            raise
        console.print(
            "", _table(train, val, history), _bad(train, val, root), sep="\n", highlight=False
        )
    console.plain(f"total {time.monotonic() - began:.0f} s")


def _checked(root: Path) -> Path:
    from fastfeed.errors import SourceError

    for split in ("train", "val"):
        if not (root / split).is_dir():
            raise SourceError(
                f"--data needs train/ and val/ with one folder per class, {root} has no {split}/"
            )
    return root


def _generated(root: Path, console: Console) -> Path:
    from fastfeed.demo.photos import make_photos

    root.parent.mkdir(parents=True, exist_ok=True)
    with console.status("making images") as status:
        try:
            photos = make_photos(
                root, progress=lambda done, of: status.update(f"making images: {done} of {of}")
            )
        except FileExistsError as error:
            raise ConfigError(f"{error}; --work says where images are made") from error
    console.plain(
        f"{photos.images} photographs of {len(photos.classes)} kinds of landmarks in {photos.root},"
        f" and {len(photos.broken)} files broken on purpose"
    )
    return photos.root


def _feeds(root: Path, work: Path, batch: int, backend: str, seed: int) -> tuple[Feed, Feed]:
    from fastfeed.demo import classifier
    from fastfeed.feed.feed import Feed
    from fastfeed.ops import CenterCrop, Normalize, RandomFlip, RandomResizedCrop, Resize
    from fastfeed.sources import ImageFolder

    size = classifier.IMAGE_SIZE
    normalize = Normalize.imagenet()
    images = ImageFolder(root / "train")
    held_out = ImageFolder(root / "val", classes=images.classes, min_per_class=1)
    work.mkdir(parents=True, exist_ok=True)
    quarantine = work / "quarantine.jsonl"
    quarantine.unlink(missing_ok=True)  # each run of the demo starts with an empty list
    train = Feed(
        images,
        [RandomResizedCrop(size, scale=classifier.CROP_SCALE), RandomFlip(), normalize],
        batch=min(batch, len(images)),
        seed=seed,
        backend=backend,  # type: ignore[arg-type]
        quarantine=quarantine,
        name="train",
    )
    val = Feed(
        held_out,
        [Resize(round(size * 8 / 7)), CenterCrop(size), normalize],
        batch=min(64, len(held_out)),
        shuffle=False,
        tail="pad",
        on_bad="mask",
        backend=backend,  # type: ignore[arg-type]
        name="val",
    )
    return train, val


def _table(train: Feed, val: Feed, history: dict[str, list[float]]) -> Table:
    table = Table(title="Feed statistics", title_justify="left")
    table.add_column("")
    for name in ("training", "validation"):
        table.add_column(name, justify="right")
    stats = [train.stats(), val.stats()]
    accuracy = next(v for k, v in history.items() if k.startswith("val_") and "accuracy" in k)
    table.add_row("images", *(f"{s.images:,}" for s in stats))
    table.add_row("images/s", *(f"{s.images_per_second:.0f}" for s in stats))
    table.add_row("time the trainer waited for data", *(f"{s.wait_share:.1%}" for s in stats))
    for stage in dict.fromkeys(stage for s in stats for stage in s.stage_ms):
        table.add_row(
            f"{stage}, thread ms per image", *(f"{s.stage_ms.get(stage, 0):.2f}" for s in stats)
        )
    table.add_row(
        "validation accuracy, last (best)", "", f"{accuracy[-1]:.2f} ({max(accuracy):.2f})"
    )
    table.add_row("bad files", *(str(len(s.bad)) for s in stats))
    return table


def _bad(train: Feed, val: Feed, root: Path) -> Table | str:
    bad = [*train.stats().bad, *val.stats().bad]
    if not bad:
        return "No bad files."
    title = "Bad files, replaced in training and masked in validation"
    table = Table(title=title, title_justify="left")
    for column in ("file", "reason", "detail"):
        table.add_column(column, overflow="fold")
    for failure in bad:
        detail = failure.detail or REASONS[failure.reason]
        table.add_row(os.path.relpath(failure.uri, root), failure.reason, detail)
    return table


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence file descriptor 2: TensorFlow logs there while it loads.

    Errors still arrive as exceptions.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)
