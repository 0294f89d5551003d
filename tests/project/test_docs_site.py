"""The site that `make docs` builds: what can be said of it without building it."""

from __future__ import annotations

import inspect
import pydoc
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from helpers.reference import subjects

import fastfeed as ff

SITE = ROOT / "docs" / "site"
NAV = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(SITE / "reference.py"))


def test_the_reference_has_every_public_name_and_command(reference: dict[str, Any]) -> None:
    pages = reference["pages"]()
    assert "::: fastfeed.feed.feed.Feed" in pages["reference/feed.md"]
    assert (
        "## fastfeed analyze" in pages["reference/cli.md"]
        and "`--fail-on LIMIT`" in pages["reference/cli.md"]
    )
    assert "### fastfeed preprocess verify" in pages["reference/cli.md"]


def test_llms_txt_has_the_api_on_one_page(reference: dict[str, Any]) -> None:
    text = reference["llms"]({"get_started.md": "# Get started\n", **reference["pages"]()})
    assert "\n- [Get started](get_started/)\n" in text
    named = set(re.findall(r"^- `([\w.]+)", text, re.M))
    public = {f"ff.{name}" for name in ff.__all__ if not inspect.ismodule(getattr(ff, name))}
    assert public - {"ff.__version__"} <= named
    assert {"feed.to_keras", "ff.keras.flow_from_dataframe", "ff.errors.ConfigError"} <= named
    assert "- `ff.Resize(size, filter='bilinear', fit=None, fill=(0, 0, 0))`: Scale an" in text


def test_every_page_is_in_the_navigation(reference: dict[str, Any]) -> None:
    named = set(re.findall(r"[:-] ([\w/]+\.md)$", NAV, re.M))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    missing = (there | set(reference["pages"]())) - named
    assert not missing, f"mkdocs.yml, nav, should have {', '.join(sorted(missing))}"
    gone = [
        name
        for name in named - there - set(reference["pages"]()) - {"index.md"}
        if not (ROOT / name).exists()
    ]
    assert not gone, f"mkdocs.yml, nav, names what is not there: {', '.join(gone)}"


def test_profiler_decoder_and_protocols_have_entries(reference: dict[str, Any]) -> None:
    entries = set(re.findall(r"^::: (\S+)$", "\n".join(reference["pages"]().values()), re.M))
    tops = {
        name
        for name, subject in subjects().items()
        if subject.kind in ("class", "protocol", "function")
    }
    assert tops - entries == set()
    assert {
        "fastfeed.profiler.analysis.analyze",
        "fastfeed.decode.recode.Recoder",
        "fastfeed.sources.base.Source",
    } <= entries


def test_help_of_adapters_names_every_parameter() -> None:
    for method in (
        ff.Feed.to_keras,
        ff.keras.backup,
        ff.Feed.to_tfdata,
        ff.Feed.to_jax,
        ff.Feed.to_torch,
    ):
        kinds = {parameter.kind for parameter in inspect.signature(method).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert "class_weight" in pydoc.render_doc(ff.Feed.to_keras)
    assert "delete_checkpoint" in pydoc.render_doc(ff.keras.backup)


def test_no_op_lacks_a_page_and_methods_of_the_compiler_are_left_out(
    reference: dict[str, Any],
) -> None:
    ops = reference["pages"]()["reference/ops.md"]
    normalize = ops.partition('heading: "ff.Normalize"')[2].partition(":::")[0]
    assert "members: ['imagenet']" in normalize
    crop = ops.partition('heading: "ff.RandomResizedCrop"')[2].partition(":::")[0]
    assert "members: false" in crop


def test_faults_of_a_built_site_are_named(tmp_path: Path) -> None:
    complaints = runpy.run_path(str(SITE / "check.py"))["complaints"]
    (tmp_path / "a.html").write_text(
        '<h2 id="x">X</h2><a href="b.html#y">Y</a><img src="a.png" alt="A picture">'
    )
    (tmp_path / "a.png").touch()
    (tmp_path / "b.html").write_text('<h2 id="y">Y</h2><a href="https://example.org">elsewhere</a>')
    assert complaints(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<a href="c.html">C</a><img src="a.png"><script src="//example.org/a.js"></script>'
    )
    assert set(complaints(tmp_path)) == {
        "a.html: no such place: b.html#y",
        "b.html: no page: c.html",
        "b.html: a picture without alt: a.png",
        "b.html: comes from another host: //example.org/a.js",
    }
