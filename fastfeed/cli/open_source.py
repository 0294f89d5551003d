"""Opens the source that a command's argument names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastfeed.cli.screen.help import ACCESS, MORE, option
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.sources.base import Source
    from fastfeed.sources.label_values import LabelKind

StorageOption = Annotated[
    list[str] | None, option("N=V", "name=value, passed to fsspec. Can be repeated.", panel=ACCESS)
]
AllowPath = Annotated[
    list[str] | None,
    option("DIR", "Folder that a table or an index may name files in.", panel=ACCESS),
]
AllowHost = Annotated[
    list[str] | None,
    option("HOST", "Private host that a table or an index may name.", panel=ACCESS),
]
AllowScheme = Annotated[
    list[str] | None,
    option("NAME", "Scheme that a table or an index may use, such as http.", panel=ACCESS),
]

Split = Annotated[
    str | None, option("NAME", "Split of a data set of Hugging Face, such as train.", panel=ACCESS)
]
Seed = Annotated[int, option("N", "Seed of the training run.", panel=MORE)]
Epoch = Annotated[int, option("N", "Epoch of the training run.", panel=MORE, min=0)]

Allow = Mapping[str, Any]  # what a table or an index may name besides, by the name of its argument


def allowed(path: list[str] | None, host: list[str] | None, scheme: list[str] | None) -> Allow:
    """Permissions from the values of --allow-path, --allow-host and --allow-scheme."""
    return {"allow_path": path or (), "allow_host": host or (), "allow_scheme": scheme or ()}


def open_source(
    source: str,
    label: str | None,
    options: list[str],
    image: str | None = None,
    labeled: bool = False,
    allow: Allow | None = None,
    label_kind: LabelKind | None = None,
    split: str | None = None,
) -> Source:
    """Open shards, a table, a folder, or the output of `fastfeed preprocess`.

    Without `label` samples have no labels, except for the output of `fastfeed preprocess`, which
    knows its own. `labeled`: use the label that a source of its kind has by default, if it is
    there. `label_kind` as in the sources. `split` of a data set of Hugging Face, which only this
    makes of an address.
    """
    from fastfeed.preprocess.inputs.formats import ColumnNames, open_shards
    from fastfeed.preprocess.inputs.previous_job import open_previous_job
    from fastfeed.sources.detect import detect_kind
    from fastfeed.storage.storage import Storage

    storage = Storage(storage_options(options))
    kind = detect_kind(source)
    if kind == "hugging_face" or split is not None:
        from fastfeed.sources.hugging_face.source import HuggingFace

        own = label_kind or ("name" if labeled or label else "none")
        columns: dict[str, Any] = {"image": image, "label": label, "label_kind": own}
        return HuggingFace(source, split, **columns, storage=storage, **(allow or {}))
    output = open_previous_job(
        source, storage, ColumnNames(label, image, ""), label_kind=label_kind
    )
    if output is not None:
        return output.source
    if kind == "folder":
        from fastfeed.sources.folder import ImageFolder

        return ImageFolder(source, labeled=label is not None, storage=storage)
    names = ColumnNames(label if labeled else label or "", image, "")
    return open_shards(kind, source, names, (), storage, allow=allow, label_kind=label_kind)[0]


def storage_options(items: list[str], option: str = "--storage-option") -> dict[str, object]:
    """The `name=value` options as a dict for fsspec; true, false and numbers are converted."""
    options: dict[str, object] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} must be name=value, such as anon=true, got {item!r}")
        options[name] = {"true": True, "false": False}.get(
            value.lower(), int(value) if value.isdigit() else value
        )
    return options
