"""Job folders made by someone else: what they name is neither imported nor read unless the command
line names it.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.small_jobs import InlineEngine

from fastfeed.errors import SourceError
from fastfeed.preprocess import open_input
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.recipe import digest

CODE = (
    "import pathlib\npathlib.Path('was run').touch()\ndef f(samples):\n    return [{'x': '1'} for _"
    " in samples]\n"
)
SMALL = ("--size", "24", "--shard-samples", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())
    (tmp_path / "photos").mkdir()
    for i in range(4):
        (tmp_path / "photos" / f"{i}.jpg").write_bytes(jpeg(i, (40, 56)))
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("captions_of_strangers", None)


def forget() -> None:
    """The job is no longer complete, and its module was not imported."""
    sys.modules.pop("captions_of_strangers", None)
    Path("was run").unlink(missing_ok=True)
    for path in (*Path("shards").glob("*.tar"), *Path("shards").rglob("records/*.json")):
        path.unlink()


@pytest.mark.parametrize(
    "verb", [("resume",), ("retry", "--reason", "io_error")], ids=lambda verb: verb[0]
)
def test_code_that_only_a_plan_names(verb: tuple[str, ...]) -> None:
    Path("captions_of_strangers.py").write_text(CODE)
    name, *options = verb
    assert preprocess("photos", "shards", *SMALL, "--with", "captions_of_strangers:f")[0] == 0
    forget()
    for places in (["shards"], ["photos", "shards"]):
        code, said = preprocess(name, *places, *options)
        assert (
            code == 2
            and not Path("was run").exists()
            and "captions_of_strangers" not in sys.modules
        )
    line = said.splitlines()[-1].strip()
    assert line.startswith(
        f"fastfeed preprocess {name} photos shards --with captions_of_strangers:f"
    )
    code, said = preprocess(name, "photos", "shards", *options, "--with", "other:f")
    assert code == 2 and "captions_of_strangers:f" in said and not Path("was run").exists()
    code, said = preprocess(*shlex.split(line)[2:])  # the line that was printed
    assert code == 0 and Path("was run").exists(), said


def test_a_source_that_only_a_plan_names() -> None:
    assert preprocess("photos", "shards", *SMALL)[0] == 0
    forget()
    code, said = preprocess("resume", "shards")
    assert code == 2 and not list(Path("shards").glob("*.tar"))
    line = said.splitlines()[-1].strip()
    assert line == "fastfeed preprocess resume photos shards"
    assert line in preprocess("status", "shards")[1]
    assert (
        preprocess(*shlex.split(line)[2:])[0] == 0 and len(list(Path("shards").glob("*.tar"))) == 2
    )


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [["../private", 4]]},
        {"groups": [["/private", 4]]},
        {"groups": [["train/../../private", 4]]},
        {"groups": [["train/{a,b}", 4]]},
        {"groups": [["", -4], ["", 8]]},
        {"groups": [["", 10**30]]},
        {"groups": [["", 4.0]]},
        {"groups": [[5, 4]]},
        {"groups": 5},
        {"length": 2},
        {"length": "4"},
        {"recipe": 7},
        {"recipe": {}},
        {"classes": 5},
        {"earlier": [["../../../x", 1, 1, ""]], "hash": "../../../x"},
        {"left_out": []},
        {"made_with": []},
    ],
    ids=str,
)
def test_a_forged_plan_is_an_error(change: dict) -> None:
    assert preprocess("photos", "shards", *SMALL)[0] == 0
    plan, order = Path("shards/__job/plan.json"), Path("shards/__job/order.npy")
    header = json.loads(plan.read_text()) | change
    parts = ("version", "recipe", "fingerprint", "length", "classes", "groups", "made_with")
    ids = np.load(io.BytesIO(order.read_bytes())).tolist()
    if "hash" not in change:
        header["hash"] = digest({**{name: header[name] for name in parts}, "order": digest(ids)})
    plan.write_text(json.dumps(header))
    for arguments in (["resume", "photos", "shards"], ["status", "shards"], ["verify", "shards"]):
        code, said = preprocess(*arguments)
        assert code != 0 and "Traceback" not in said, said
    if "groups" in change:
        with pytest.raises(SourceError, match=r"the plan in .* is damaged"):
            open_input("shards")
    assert not Path("private").exists() and not Path("../private").exists()
