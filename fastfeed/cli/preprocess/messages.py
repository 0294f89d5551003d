"""Messages of the library in the words of the command line: options instead of arguments of
Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["again", "in_options", "without_secret"]

_SECRET = re.compile(
    r"^((?:--[\w-]+=)?[\w.-]*(?:secret|token|passw|credential|key)[\w.-]*=).*$", re.I | re.S
)
_NAMES = {  # options by argument or field, where they differ from it
    "labels_file": "labels",
    "samples": "shard-samples",
    "formats": "only-formats",
    "image_format": "image-format",
    "split_by": "split-by",
    "timeout_s": "timeout",
    "extras": "with",
    "extras_batch": "with-batch",
    "target_storage": "target-option",
    "storage": "storage-option",
}
_SAME = (
    *(
        "label",
        "image",
        "caption",
        "columns",
        "size",
        "mode",
        "filter",
        "enlarge",
        "buckets",
        "matte",
        "fill",
    ),
    *(
        "quality",
        "subsampling",
        "format",
        "shuffle",
        "val",
        "min_side",
        "max_aspect",
        "max_pixels",
        "dedupe",
    ),
    *("distance", "full_decode", "workers", "memory", "max_bad", "part", "split_seed", "append"),
    *("allow_path", "allow_host", "allow_scheme", "label_kind", "exif", "patience", "timeout"),
)
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _SAME} | {
    k: f"--{v}" for k, v in _NAMES.items()
}
_PHRASES = (  # what is not written as an assignment, or is something else on the command line
    ('missing="drop"', "--drop-unlabeled"),
    ("label='its name'", "--label NAME"),
    ("image='its name'", "--image NAME"),
    (
        'use mode "contain", or "cover" or "exact" with',
        "use --mode contain, or --mode cover or exact with",
    ),
    ("enlarge=True", "--enlarge"),
    ('use Encoding("raw")', "use --image-format raw"),
    ("pass labels_file", "pass --labels FILE"),
    ("leave append out", "leave --append out"),
    ("append=True (--append)", "--append"),
    ("allow_path (--allow-path)", "--allow-path"),
    ("split_seed (--split-seed)", "--split-seed"),
    ('pass "" for none', "pass --label '' for none"),
    ("pass labeled=False", "pass --label ''"),
    ("pass cache= instead of simplecache::", "leave simplecache:: out"),
)
_SOURCE = re.compile(
    r"^(?:Table|TarShards|TFRecords|MDSShards|RawShards): (?=(?:label|image|columns) must )"
)
_TWICE = re.compile(r"label_kind='\w+' \((--label-kind \w+)\)")
_CLIENT = re.compile(  # of storage/clients.py
    r"pass (storage|target_storage)=\{'key': \.\.\., 'secret': \.\.\.\}, or \{'anon': True\} for"
    r" public data"
)
_BOTH = re.compile(r"pass allow_\w+=\[.*?\](?:, allow_\w+=\[.*?\])* \((--allow-.*?)\)(?=$|[\s;.,])")
_ASSIGNED = re.compile(
    rf"(?<![\w.-])({'|'.join(_OPTIONS)})=('[^']*'|\"[^\"]*\"|\([^()]*\)|[\w.%]+)"
)
_FIRST = re.compile(rf"^({'|'.join(_OPTIONS)})(?= (?:must|needs|is long|is for|\"))")
_AFTER = re.compile(
    r"(?<![\w-])(max_bad|labels_file|label_kind|allow_path|allow_host|allow_scheme)(?!\w)"
)


def again(
    verb: str,
    source: str,
    dst: str,
    extras: str,
    *options: str,
    request: Mapping[str, Any],
    target: Sequence[str] | None,
) -> str:
    """A command line that continues a job: it names everything that is read or imported.

    request: the options that open the source, as `InputRequest.document`. target: values of
    --target-option.
    """
    words = [
        "fastfeed",
        "preprocess",
        verb,
        source,
        dst,
        *(("--with", extras) if extras else ()),
        *options,
    ]
    words += _source_words(request)
    words += [word for value in target or () for word in ("--target-option", without_secret(value))]
    return shlex.join(words)


def without_secret(word: str) -> str:
    """A word of a command line; the value of an option that looks like a secret is left out."""
    return _SECRET.sub(r"\1...", word)


def _source_words(request: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in request.items():
        option = f"--{_NAMES.get(name, name).replace('_', '-')}"
        if name == "missing":
            words.append("--drop-unlabeled")
        elif name == "columns":
            words += [option, ",".join(value)]
        else:
            words += [
                word
                for item in (value if isinstance(value, list) else [value])
                for word in (option, item)
            ]
    return words


def in_options(message: str) -> str:
    """The message with `--label x` for `label='x'`, and so on."""
    for phrase, option in _PHRASES:
        message = message.replace(phrase, option)
    message = _BOTH.sub(r"pass \1", message)
    message = _TWICE.sub(r"\1", message)
    message = _CLIENT.sub(_client_options, message)
    message = _ASSIGNED.sub(lambda m: f"{_OPTIONS[m[1]]} {_word(m[2])}", message)
    message = _SOURCE.sub("", message)
    message = _FIRST.sub(lambda m: _OPTIONS[m[1]], message)
    return _AFTER.sub(lambda m: _OPTIONS[m[1]], message)


def _client_options(found: re.Match[str]) -> str:
    option = _OPTIONS[found[1]]
    return f"pass {option} key=... {option} secret=..., or {option} anon=true for public data"


def _word(value: str) -> str:
    """As a shell takes it; of a tuple, its items with commas between; of None, nothing."""
    if value.startswith("("):
        value = ",".join(
            item.strip(" '\"") for item in value.strip("()").split(",") if item.strip()
        )
    text = "" if value == "None" else value.strip("'\"")
    return text if re.fullmatch(r"[\w./:@%+-]+", text) else f"'{text}'"
