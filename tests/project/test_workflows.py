"""What the workflows on GitHub run: targets and scripts that are there, and a release that waits
for Linux alone.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import ROOT

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
FOLDER = ROOT / ".github" / "workflows"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="a source archive has no .github: run it in a clone"
)
NAMES = sorted(path.stem for path in FOLDER.glob("*.yml"))
RETIRED = re.compile(r"(macos-1[0-4]|windows-20(16|19|22)|ubuntu-(18|20)\.04)\b")


def jobs(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yml").read_text("utf-8"))["jobs"]


def needed(all_jobs: dict[str, Any], name: str) -> set[str]:
    """The jobs that one waits for, and all that these wait for."""
    direct = all_jobs[name].get("needs", [])
    direct = {direct} if isinstance(direct, str) else set(direct)
    return direct.union(*(needed(all_jobs, other) for other in direct))


def machines(job: dict[str, Any]) -> set[str]:
    own = job["runs-on"]
    rows = job.get("strategy", {}).get("matrix", {}).get("include", [])
    return {row["machine"] for row in rows} if "matrix.machine" in own else {own}


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_a_release_waits_for_linux_and_the_sdist_alone() -> None:
    release = jobs("release")
    before = needed(release, "publish")
    assert {"check", "sdist", "wheels", "reproducible", "free-threaded"} <= before
    for name in before:
        assert all(machine.startswith("ubuntu") for machine in machines(release[name])), name
        assert not release[name].get("continue-on-error"), name


def test_wheels_for_other_systems_follow_the_release_if_they_could_be_built() -> None:
    release = jobs("release")
    there = machines(release["experimental"])
    assert {machine.split("-")[0] for machine in there} == {"macos", "windows"} and len(there) == 3
    after = release["publish-experimental"]
    assert set(after["needs"]) == {"publish", "experimental"}
    # neither a failed wheel nor one that was left out keeps the others back
    assert "!cancelled()" in after["if"] and "needs.publish.result == 'success'" in after["if"]
    assert not release["experimental"]["strategy"]["fail-fast"]


@pytest.mark.parametrize("name", NAMES)
def test_no_runner_is_one_that_was_retired(name: str) -> None:
    assert not RETIRED.search((FOLDER / f"{name}.yml").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_run_is_there(name: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for title, job in jobs(name).items():
        for target in re.findall(r"^make ([\w-]+)", commands(job), re.M):
            assert target in targets, f"{title}: make {target}"
        for script in re.findall(r"(?<!\w)(packaging/\w+\.py|\.ci/\w+)", commands(job)):
            assert (ROOT / script).is_file(), f"{title}: {script}"
        assert set(needed(jobs(name), title)) <= set(jobs(name)), title


def test_every_python_has_its_clean_room() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    supported = re.findall(r"Python :: (3\.\d+)\"", project)
    ci = jobs("ci")
    assert ci["clean-room"]["strategy"]["matrix"]["python"] == supported
    assert "make wheel-test" in commands(ci["clean-room"]) and "make reproducible" in commands(
        ci["reproducible"]
    )
    assert {"make gpu-kit", "make gpu-kit-dry"} <= set(commands(ci["gpu-kit"]).split("\n"))


def test_windows_is_built_with_clang() -> None:
    """cl.exe knows neither the sources' vectors nor the option that keeps pixels the same
    everywhere.
    """
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    windows = project.partition("[tool.cibuildwheel.windows]")[2].partition("\n[")[0]
    assert 'CMAKE_GENERATOR_TOOLSET = "ClangCL"' in windows and "FASTFEED_BUNDLED" in windows
    build = (ROOT / "fastfeed" / "native" / "CMakeLists.txt").read_text("utf-8")
    assert "list(TRANSFORM flags PREPEND /clang:)" in build


def test_packages_are_installed_after_an_update() -> None:
    for name in NAMES:
        for title, job in jobs(name).items():
            text = commands(job)
            assert "apt-get install" not in text or "apt-get update" in text, f"{name}, {title}"


def test_the_versions_of_libjpeg_that_docs_name_are_tried() -> None:
    said = re.search(
        r"the same with ([\d., and]+\d)",
        " ".join((ROOT / "docs" / "installing.md").read_text().split()),
    )
    assert said
    tried = re.search(r"for version in ([\d. ]+);", commands(jobs("libjpeg")["versions"]))
    assert tried and tried[1].split() == re.findall(r"[\d.]*\d", said[1])
