"""The JSON is documented field by field, and metrics follow the rules that promtool checks."""

import json
import re

import pytest
from conftest import ROOT
from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer

from fastfeed.live.document import document
from fastfeed.live.http.prometheus import metrics
from fastfeed.live.nvml import Gpus
from fastfeed.live.page import COUNTERS
from fastfeed.live.watch import Monitor


@pytest.fixture
def view(tmp_path):
    trainer = Trainer(tmp_path)
    watch = Monitor([str(tmp_path)], None, Gpus(FakeNvml(gpm={2: 71.0})), clock=lambda: trainer.now)
    for _ in range(5):
        trainer.train(3, 0.25)
        watch.look()
    trainer._counters |= {"phase": 1}
    trainer._page.set_doing("read", "/photos")
    trainer._page.write([trainer._counters[name] for name in COUNTERS])
    trainer.now += 2_000_000_000
    return watch.look()


def fields(value, prefix=""):
    for name, inner in value.items():
        yield prefix + name
        if isinstance(inner, dict) and name != "stage_ms_per_image":
            yield from fields(inner, f"{prefix}{name}.")


def test_every_field_is_documented(view):
    (feed,) = json.loads(json.dumps(document(view)))["feeds"]
    page = (ROOT / "docs/watching.md").read_text().split("## JSON")[1]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = set(re.findall(r"`([a-z0-9_.]+)`", " ".join(rows)))
    groups = {"exact", "history", "framework", "estimate"}
    assert documented == set(fields(feed)) - groups
    assert feed["waiting"] | {"stage_seconds": 0} == {
        "seconds": 2.0,
        "stage": "read",
        "place": "/photos",
        "stage_seconds": 0,
    }
    assert feed["history"]["wait"][-1] is not None


def test_metrics_as_promtool_wants_them(view):
    """HELP and TYPE once, before the samples, which are together; base units; counters alone end in
    _total.
    """
    seen, kinds, current = set(), {}, ""
    for line in metrics(view).splitlines():
        name = re.match(r"# (?:HELP|TYPE) (\S+)|([a-z_]+)\{", line)
        assert name, line
        name = name[1] or name[2]
        if line.startswith("# HELP"):
            assert name not in seen, f"{name} appears twice"
            assert len(line.split(" ", 3)[3]) > 5
            seen.add(name)
            current = name
        elif line.startswith("# TYPE"):
            kinds[name] = line.split()[3]
        assert name == current, "samples of a metric are together"
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert not re.search(r"_(ms|ns|us|milliseconds|minutes|kb|mb|percent)(_|$)", name), (
            "base units"
        )
        assert not re.search(r"_(gauge|counter|count|sum|bucket)$", name)
    assert kinds.keys() == seen
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())
