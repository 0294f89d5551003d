"""What a release must have, and what a wheel may hold: the checks themselves."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

from fastfeed.runtime.extension import is_built

PACKAGING = ROOT / "packaging"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PACKAGING.is_dir(), reason="not in a source tree"),
]
CHANGES = (
    "# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n### Added\n- a thing\n\n## 0.1.0\n- the first\n"
)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PACKAGING / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "fastfeed").mkdir()
    (tmp_path / "fastfeed" / "version.py").write_text(
        '__all__ = ["__version__"]\n\n__version__ = "0.2.0"\n'
    )
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_the_version_of_this_tree_is_read() -> None:
    from fastfeed.version import __version__

    assert script("release").version(ROOT) == __version__


def test_a_release_has_its_section(tree: Path) -> None:
    release = script("release")
    assert release.check(tree, "v0.2.0") == "0.2.0"
    assert release.notes(tree) == "### Added\n- a thing\n"


def test_tag_version_and_changelog_must_agree(tree: Path) -> None:
    release = script("release")
    with pytest.raises(
        ValueError, match=r"the tag must be v0.2.0, as fastfeed/version.py says, got v0.2.1"
    ):
        release.check(tree, "v0.2.1")
    (tree / "CHANGELOG.md").write_text(CHANGES.replace("## 0.2.0", "## 0.2.0.1"))
    with pytest.raises(
        ValueError, match=r"must have a section '## 0.2.0' that is not empty, got Unreleased"
    ):
        release.check(tree, "v0.2.0")
    (tree / "fastfeed" / "version.py").write_text('__version__ = "0.2.0.dev0"\n')
    with pytest.raises(ValueError, match=r"a release is 1.2.3 or 1.2.3rc1, got 0.2.0.dev0"):
        release.check(tree, "v0.2.0.dev0")


def test_a_release_leaves_nothing_unreleased(tree: Path) -> None:
    release = script("release")
    (tree / "CHANGELOG.md").write_text(
        CHANGES.replace("## Unreleased\n", "## Unreleased\n\n### Fixed\n- more\n")
    )
    for tag in ("v0.2.0", ""):
        with pytest.raises(
            ValueError, match=r"nothing under 'Unreleased' where the version is 0\.2\.0, got '###"
        ):
            release.check(tree, tag)
    (tree / "fastfeed" / "version.py").write_text('__version__ = "0.3.0.dev0"\n')
    assert release.check(tree) == "0.3.0.dev0"


def test_a_tag_is_made_of_a_clean_commit_only(tree: Path) -> None:
    release = script("release")

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.check_output(["git", *who, *words], cwd=tree, text=True)

    git("init", "-q")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b.c")
    with pytest.raises(ValueError, match="commit all changes before the tag"):
        release.tag(tree)
    git("add", "-A")
    git("commit", "-qm", "all")
    assert "git push origin v0.2.0" in release.tag(tree)
    assert "### Added" in git("tag", "-n9", "-l", "v0.2.0")
    with pytest.raises(ValueError, match="already exists"):
        release.tag(tree)


def test_version_and_changelog_of_this_tree_agree() -> None:
    release = script("release")
    wanted = release.check(ROOT)
    newest = re.search(r"^## (\d+\.\d+)\.\d+ ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest and not (release.unreleased(ROOT) and wanted.startswith(f"{newest[1]}.")), (
        "the next one's dev0"
    )


def test_a_wheel_without_a_kernel_or_licences_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "fastfeed-0.2.0-cp311-cp311-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fastfeed/__init__.py", "")
        archive.writestr("fastfeed.libs/libjpeg-1234.so", "")
    with pytest.raises(SystemExit) as refusal:
        script("wheels").check(wheel, tmp_path)
    text = str(refusal.value)
    assert "cannot be released: one kernel must be inside, got none; " in text
    assert (
        "licenses/libjpeg-turbo/LICENSE.md is missing" in text
        and "sboms/fastfeed.cdx.json is missing" in text
    )
    assert "fastfeed.libs/libjpeg-1234.so is a library of this machine" in text


def test_the_clean_room_takes_the_wheel_of_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGING))
    room, machine = script("clean_room"), platform.machine().lower()
    with pytest.raises(
        SystemExit,
        match=r"must have a wheel of .* for cp3\d\d-\w+ on .*; run make wheel, or pass one",
    ):
        room.fitting(tmp_path, sys.executable)
    for tag in ("cp310-cp310", "cp311-cp311", "cp312-abi3"):
        for version in (script("release").version(ROOT), "9.9.9"):
            (tmp_path / f"fastfeed-{version}-{tag}-manylinux_2_34_{machine}.whl").touch()
            (tmp_path / f"fastfeed-{version}-{tag}-manylinux_2_34_other.whl").touch()
    wheel = room.fitting(tmp_path, sys.executable).name
    own = f"cp3{sys.version_info[1]}"
    assert wheel.startswith(f"fastfeed-{script('release').version(ROOT)}-") and wheel.endswith(
        f"_{machine}.whl"
    )
    assert f"-{own}-{own}-" in wheel or (sys.version_info >= (3, 12) and "-cp312-abi3-" in wheel)


def test_the_oldest_dependencies_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGING))
    pins = script("clean_room").lowest()
    assert "numpy==2.0.*" in pins
    block = re.search(
        r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    *own, arrow, yaml = pins
    assert block and len(own) == len(re.findall(r'^    "', block[1], re.M))
    assert arrow.startswith("pyarrow=="), "of the extra that most sources use"
    assert yaml.lower().startswith("pyyaml==")


def test_classifiers_name_the_systems_whose_wheels_were_built() -> None:
    table = (
        (ROOT / "docs" / "installing.md")
        .read_text("utf-8")
        .partition("| platform |")[2]
        .partition("\n\n")[0]
    )
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| ")]
    built = " ".join(platforms for platforms, how in rows if how.strip().startswith("yes"))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for system, classifier in (
        ("Linux", "POSIX :: Linux"),
        ("macOS", "MacOS"),
        ("Windows", "Microsoft :: Windows"),
    ):
        assert (system in built) == (f'"Operating System :: {classifier}"' in project), system


def test_pixels_that_differ_are_named() -> None:
    differences = script("same_bytes").differences
    one = {"a.jpg": {"by": "kernel", "scaled": "12"}, "b.jpg": {"by": "bad: truncated"}}
    assert differences(one, one) == []
    two = {"a.jpg": {"by": "kernel", "scaled": "13"}, "c.jpg": {"by": "Pillow"}}
    assert differences(one, two) == [
        "a.jpg: scaled 12 and 13",
        "b.jpg: by bad: truncated and None",
        "c.jpg: by None and Pillow",
    ]


def test_every_kind_of_file_is_compared_and_a_folder_decodes_to_the_same_bytes_twice(
    tmp_path: Path,
) -> None:
    same = script("same_bytes")
    same.make_images(tmp_path / "made")
    names = [path.name for path in (tmp_path / "made").iterdir()]
    for kind in ("444", "422", "420", "gray", "cmyk", "exif", "truncated", "damaged"):
        assert any(name.startswith(kind) for name in names), kind
    for kind in (
        "-progressive",
        "-restarts",
        "16bit-203x157.png",
        "palette-",
        "-lossless.webp",
        "rgba-1920x1923-q80.webp",
        "lzw.tif",
    ):
        assert any(kind in name for name in names), kind
    some = tmp_path / "some"
    some.mkdir()
    for name in sorted(names)[::40]:
        shutil.copy(tmp_path / "made" / name, some)
    if not is_built():
        pytest.skip("the native extension is not built")
    first = same.decoded([some])
    namesake = tmp_path / "other" / "some"  # another folder of this name, with the same names in it
    shutil.copytree(some, namesake)
    assert len(same.decoded([some, namesake])) == 2 * (len(first) - 1) + 1
    assert first.pop("kernel") and {about["by"] for about in first.values()} >= {"kernel", "Pillow"}
    assert first == {
        name: about for name, about in same.decoded([some]).items() if name != "kernel"
    }


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake: pip install cmake")
def test_a_source_with_another_hash_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "libjpeg.tar.gz"
    archive.write_bytes(b"another archive")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(refused LANGUAGES NONE)\n"
        f"include({(ROOT / 'fastfeed' / 'native' / 'bundled.cmake').as_posix()})\n"
    )

    def configure(*more: str) -> str:
        command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode
        return " ".join(done.stderr.split())

    text = configure(f"-DLIBJPEG_SOURCE={archive}")
    assert (
        "the SHA-256 must be 075920b826834ac4ddf97661cc73491047855859affd671d52079c6867c1c6c0 or"
        in text
    )
    assert "If this archive is the one you mean, set LIBJPEG_SHA256=" in text
    text = configure(f"-DLIBJPEG_SOURCE={tmp_path / 'missing.tar.gz'}")
    assert (
        "is neither a file nor can it be downloaded" in text
        and "Set LIBJPEG_SOURCE to the path or URL" in text
    )


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake: pip install cmake")
@pytest.mark.parametrize("headers", [True, False])
def test_libraries_are_the_systems_then_those_of_the_archives(
    tmp_path: Path, headers: bool
) -> None:
    archive = tmp_path / "libjpeg.tar.gz"
    archive.write_bytes(b"another archive")
    (tmp_path / "jpeglib.h").write_text("#define JPEG_LIB_VERSION 80\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(order LANGUAGES NONE)\n"
        f"include({(ROOT / 'fastfeed' / 'native' / 'libraries.cmake').as_posix()})\n"
        'message(STATUS "${JPEG_LIBRARIES}")\n'
    )
    system = [f"-DJPEG_INCLUDE_DIR={tmp_path}", "-DJPEG_LIBRARY=/system/libjpeg.so"]
    highway = [f"-DHWY_INCLUDE_DIR={tmp_path}", "-DHWY_LIBRARY=/system/libhwy.so"]
    hidden = ["-DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON"]
    command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), *highway]
    command += [f"-DLIBJPEG_SOURCE={archive}", *(system if headers else hidden)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if headers:
        assert done.returncode == 0 and "/system/libjpeg.so" in done.stdout, done.stderr
    else:
        assert "built from their archives" in done.stdout
        assert "the SHA-256 must be 075920b8" in " ".join(done.stderr.split()), "as wheels do"


def test_what_was_only_compiled_is_not_called_built() -> None:
    """For macOS and Windows there are objects of the native extension: nothing was linked, so
    nothing was built.
    """
    for name in ("installing", "stability"):
        text = " ".join((ROOT / "docs" / f"{name}.md").read_text("utf-8").split())
        assert "compiled, not linked" in text and "built, not run" not in text, name
