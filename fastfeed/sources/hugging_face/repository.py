"""Files of a split of a data set: of a repository of the Hub, or a folder of `save_to_disk`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastfeed.errors import ConfigError, MissingExtra, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.json_file import parse_json
from fastfeed.storage.expand import read_whole
from fastfeed.storage.reads import is_local, readable
from fastfeed.storage.storage import Storage

SUFFIXES = (".parquet", ".arrow")
_SHARD = re.compile(r"(?:.*/)?([^/]+?)-[0-9]{5}-of-[0-9]{5}[^/]*")  # train-00000-of-00002.parquet
_SPLITS = {  # words of names of files and folders
    "train": "train training",
    "validation": "validation valid dev val",
    "test": "test testing eval evaluation",
}
_WORDS = {word: split for split, words in _SPLITS.items() for word in words.split()}
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # of a data set on the Hub
_WORD = re.compile(rf"(?<![a-z0-9])({'|'.join(_WORDS)})(?![a-z])")


def find_data(
    data: str, split: str | None, name: str | None, storage: Storage
) -> tuple[list[str], str]:
    """The files of a split, in their order, and the configuration. ConfigError, SourceError.

    The configuration is "" unless there are several to choose from.
    """
    listing = _list(data.rstrip("/") or data[:1], storage)
    data = printable(data)
    if not listing:
        hub = f", or 'hf://datasets/{data}' for the Hub" if _NAME.fullmatch(data) else ""
        raise SourceError(
            f"HuggingFace: {data} is not a folder with files; pass the folder of a data set{hub}"
        )
    if "dataset_dict.json" in listing:
        splits = _json(listing["dataset_dict.json"], storage).get("splits")
        known = list(map(str, splits)) if isinstance(splits, list) else []
        split = choose(data, "split", split, known, f"; {data}/{known[0]} is one" if known else "")
        prefix = f"{split}/"
        listing = {
            path.removeprefix(prefix): uri
            for path, uri in listing.items()
            if path.startswith(prefix)
        }
        split = None
    if "state.json" in listing:
        return _saved(data, split, listing, storage), ""
    splits, configuration = _repository_splits(data, name, listing, storage)
    return splits[choose(data, "split", split, list(splits))], configuration


def choose(data: str, kind: str, wanted: str | None, options: Sequence[str], hint: str = "") -> str:
    """The one that is wanted, or the only one. ConfigError, whose text ends with `hint`."""
    if wanted in options:
        return str(wanted)
    if wanted is None and len(options) == 1:
        return options[0]
    names = ", ".join(map(printable, options[:30])) or "none"
    argument = {"split": "split", "configuration": "name"}[kind]
    got = "none" if wanted is None else printable(repr(wanted))
    if wanted is not None and "[" in wanted:
        hint = "; parts of a split are those of ff.take"
    elif options and not hint:
        hint = f"; pass {argument}={printable(repr(options[0]))}"
    raise ConfigError(
        f"HuggingFace: {argument} must be a {kind} of {data}, got {got}; it has {names}{hint}"
    )


def _list(root: str, storage: Storage) -> dict[str, str]:
    """Addresses of files by their paths below a folder."""
    if not is_local(root):
        prefix = f"{root}/"
        return {uri.removeprefix(prefix): uri for uri, _ in storage.find(root)}
    return dict(sorted(_walk(root.removeprefix("file://"))))


def _walk(root: str) -> Iterator[tuple[str, str]]:
    for base, folders, names in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        for file in names:
            path = os.path.join(base, file)
            yield os.path.relpath(path, root).replace(os.sep, "/"), path


def _text(uri: str, storage: Storage) -> str:
    return readable(read_whole(uri, storage), uri, "HuggingFace").decode("utf-8", "replace")


def _json(uri: str, storage: Storage) -> dict[str, Any]:
    try:
        content = parse_json(_text(uri, storage).encode())
    except (ValueError, RecursionError) as error:
        raise SourceError(f"HuggingFace: {uri} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise SourceError(f"HuggingFace: {uri} must hold a JSON object, got {printable(content)}")
    return content


def _saved(data: str, split: str | None, listing: Mapping[str, str], storage: Storage) -> list[str]:
    """Files of a data set that `save_to_disk` has written."""
    state = _json(listing["state.json"], storage)
    own = state.get("_split")
    if split is not None and split != own:
        choose(data, "split", split, [own] if isinstance(own, str) else [])
    try:
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise SourceError(
            f"HuggingFace: {listing['state.json']} does not list _data_files; save the data set"
            " with save_to_disk again"
        ) from error
    if state.get("_indices_files") or not names:
        raise SourceError(
            f"HuggingFace: {data} was saved by an old version of datasets, or has no rows; load it"
            " and save it again"
        )
    missing = [name for name in names if name not in listing]
    if missing:
        raise SourceError(
            f"HuggingFace: {printable(missing[0])} of {listing['state.json']} is not in {data}; copy"
            " all files of the data set"
        )
    return [listing[name] for name in names]


# -- repositories


def _repository_splits(
    data: str, name: str | None, listing: Mapping[str, str], storage: Storage
) -> tuple[dict[str, list[str]], str]:
    """Files by split, as README.md says, or as their names do; and one of several configurations."""
    configs = _configurations(listing["README.md"], storage) if "README.md" in listing else {}
    tables = {path: uri for path, uri in listing.items() if path.endswith(SUFFIXES)}
    if not tables:
        raise SourceError(
            f"HuggingFace: no {' or '.join(SUFFIXES)} in {data}; images in folders are read by"
            " ImageFolder, other tables by Table"
        )
    if not configs:
        return _by_names(data, name, tables)
    default = next((key for key, config in configs.items() if config.get("default") is True), None)
    default = default or ("default" if "default" in configs else None)
    chosen = choose(data, "configuration", name or default, list(configs))
    config = configs[chosen]
    configuration = chosen if len(configs) > 1 else ""
    folder = str(config.get("data_dir") or "").strip("/")
    if folder:
        prefix = f"{folder}/"
        tables = {
            path.removeprefix(prefix): uri
            for path, uri in tables.items()
            if path.startswith(prefix)
        }
    if not config.get("data_files"):
        return _by_names(data, None, tables)[0], configuration
    from fsspec.utils import glob_translate

    splits: dict[str, list[str]] = {}
    for split, patterns in _patterns(config["data_files"]):
        fits = [re.compile(glob_translate(text.removeprefix("./"))).match for text in patterns]
        splits[split] = [uri for fit in fits for path, uri in tables.items() if fit(path)]
    empty = [split for split, uris in splits.items() if not uris]
    if empty:
        raise SourceError(
            f"HuggingFace: no {' or '.join(SUFFIXES)} in {data} is what its README.md names as split"
            f" {printable(empty[0])}; download the whole data set, or pass its files to Table"
        )
    return {split: list(dict.fromkeys(uris)) for split, uris in splits.items()}, configuration


def _configurations(readme: str, storage: Storage) -> dict[str, dict[str, Any]]:
    """Configurations by name, from the YAML at the beginning of a README."""
    lines = _text(readme, storage).splitlines()
    ends = [k for k, line in enumerate(lines) if line.strip() == "---"][:2]
    if len(ends) < 2 or ends[0] != 0:
        return {}
    head = "\n".join(lines[1 : ends[1]])
    if not re.search("^configs *:", head, re.MULTILINE):
        return {}
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra.of("HuggingFace", "PyYAML", "parquet") from error
    try:
        configs = yaml.safe_load(head)["configs"]
        return {str(config["config_name"]): dict(config) for config in configs}
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise SourceError(
            f"HuggingFace: cannot read the configs of {readme} ({printable(error)}); pass the files"
            " to Table"
        ) from error


def _patterns(data_files: Any) -> Iterator[tuple[str, list[str]]]:
    """Patterns of files by split, as README.md may spell them."""
    if isinstance(data_files, Mapping):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    if isinstance(data_files, str) or not all(isinstance(item, Mapping) for item in data_files):
        data_files = [{"split": "train", "path": data_files}]
    for item in data_files:
        paths = item.get("path") or ()
        yield str(item.get("split")), [paths] if isinstance(paths, str) else list(map(str, paths))


def _by_names(
    data: str, name: str | None, tables: Mapping[str, str]
) -> tuple[dict[str, list[str]], str]:
    """Files by the split in their names, such as `data/train-00000-of-00002.parquet`.

    And one of several configurations.
    """
    folders = _folders(tables)
    folder = ""
    if name is not None or len(folders) > 1:
        folder = choose(data, "configuration", name, folders)
        tables = {path: uri for path, uri in tables.items() if path.startswith(f"{folder}/")}
    splits: dict[str, list[str]] = {}
    for path, uri in tables.items():
        splits.setdefault(_split(path), []).append(uri)
    return splits, folder if len(folders) > 1 else ""


def _folders(paths: Iterable[str]) -> list[str]:
    """Folders that have shards of splits: each is a configuration, but `data`."""
    folders = {os.path.dirname(path) for path in paths if _SHARD.fullmatch(path)}
    return sorted(folders - {"", "data"}) or [""]


def _split(path: str) -> str:
    if shard := _SHARD.fullmatch(path):
        return shard[1]
    folder, _, file = path.lower().rpartition("/")
    words = _WORD.findall(file) or _WORD.findall(folder)
    return _WORDS[words[0]] if words else "train"
