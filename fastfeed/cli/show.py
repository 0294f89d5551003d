"""`fastfeed show DIR`: a contact sheet of what the trainer will see."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from PIL import Image

    from fastfeed.batch import Batch
    from fastfeed.sources import ImageFolder

__all__ = ["contact_sheet", "folder", "show"]

_MARGIN, _TEXT = 8, 14  # pixels
_PAPER, _INK = (250, 250, 248), (40, 40, 40)


def show(
    directory: Annotated[Path, typer.Argument(help="Folder of images; its class folders become labels.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The PNG to write.")] = Path("contact-sheet.png"),
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many samples.")] = 24,
    size: Annotated[int, typer.Option(min=16, max=1024, help="Side of a sample, pixels.")] = 160,
    evaluate: Annotated[bool, typer.Option("--eval", help="Resize and center crop, as for validation.")] = False,
    scale: Annotated[float, typer.Option(help="Least share of an image that a random crop shows.")] = 0.08,
    seed: Annotated[int, typer.Option(help="Of the run to look at.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Of the run to look at.")] = 0,
) -> None:
    """Draw the first samples that a training run with this seed sees, augmented and labeled."""
    from fastfeed.errors import ConfigError
    from fastfeed.feed import Feed
    from fastfeed.ops import CenterCrop, RandomFlip, RandomResizedCrop, Resize
    from fastfeed.world import World

    console = Console()
    source = folder(directory)
    console.print(f"{source!r}", soft_wrap=True, highlight=False)
    if out.suffix.lower() != ".png" or not out.resolve().parent.is_dir():
        raise ConfigError(f"--out must be a .png in an existing folder, got {out}")
    ops = [Resize(round(size * 256 / 224)), CenterCrop(size)] if evaluate else [
        RandomResizedCrop(size, scale=(scale, 1.0)), RandomFlip()]  # fmt: skip
    with Feed(source, ops, batch=min(count, len(source)), seed=seed, world=World()) as feed:
        batch = next(feed.batches(epoch))
        bad = feed.stats().bad
    contact_sheet(batch, source.classes).save(out)
    console.print(f"{len(batch)} samples of epoch {epoch}, seed {seed} -> [bold]{out}[/]", highlight=False)
    for failure in bad:
        console.print(f"  left out, bad: {failure}", style="yellow", soft_wrap=True, highlight=False, markup=False)


def folder(directory: Path) -> ImageFolder:
    """The images of a folder: by class where it has class folders; of its train/ where it has train/ and val/."""
    from fastfeed.sources import ImageFolder

    if (directory / "train").is_dir() and (directory / "val").is_dir():
        directory = directory / "train"
    has_folders = directory.is_dir() and any(p.is_dir() for p in directory.iterdir() if not p.name.startswith("."))
    return ImageFolder(directory, labeled=has_folders, min_per_class=1)


def contact_sheet(batch: Batch, classes: tuple[str, ...]) -> Image.Image:
    """All images of a uint8 HWC batch in a grid about 4:3, with class names and sample ids under them."""
    from PIL import Image, ImageDraw, ImageFont

    n, height, width = batch.images.shape[:3]
    columns = max(1, min(n, round(math.sqrt(n * 4 / 3))))
    rows = -(-n // columns)
    step_x, step_y = width + _MARGIN, height + _MARGIN + _TEXT + 4
    sheet = Image.new("RGB", (columns * step_x + _MARGIN, rows * step_y + _MARGIN), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT - 2)
    for i in range(n):
        x, y = _MARGIN + i % columns * step_x, _MARGIN + i // columns * step_y
        pixels = batch.images[i]
        sheet.paste(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels), (x, y))
        label = int(batch.labels[i])
        name = classes[label] if 0 <= label < len(classes) else ("" if label < 0 else str(label))
        text = f"{name}  #{batch.ids[i]}".strip()
        while len(text) > 1 and draw.textlength(text, font) > width:
            text = text[:-2] + "…"
        draw.text((x, y + height + 2), text, _INK, font)
    return sheet
