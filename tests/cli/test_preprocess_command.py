"""`fastfeed preprocess` as a user meets it: a job from the plan to the preview, its words and its
exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from pkgutil import resolve_name

import pytest
from conftest import environment
from helpers.commands import STRICT, CliRunner
from helpers.photos import folder, jpeg
from helpers.small_jobs import InlineEngine, source

from fastfeed.cli import app
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.report import STAGES

SMALL = ("--size", "24", "--shard-samples", "6")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())
    source(tmp_path / "photos")


def fastfeed(*arguments, code=0):
    """stdout and stderr of a command that has this exit code."""
    done = CliRunner().invoke(app, ["preprocess", *map(str, arguments)], catch_exceptions=True)
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        from fastfeed.errors import FastfeedError

        if not isinstance(error, FastfeedError):
            raise error
        assert code == 2, error
        return done.stdout, f"fastfeed: {error}\n"  # as `main` says it
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def shard_bytes(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("shard-*"))}


def test_a_job_and_all_that_can_be_asked_of_it():
    out, err = fastfeed("photos", "shards", *SMALL, "--json-log", "log")
    assert out.splitlines()[0].startswith("shards: 4 of 4 shards, 18 images, ")
    assert "3 bad: 1 " in out and "truncated" in out and "fastfeed preprocess preview shards" in out
    hint, *numbers = [line for line in err.splitlines() if line not in STAGES.values()]
    assert (
        hint.startswith("fastfeed: 4 of 4 shards hold one class only")
        and "(--shuffle 0) mixes them" in hint
    )
    assert numbers == ["0 of 4 shards, 0 of 21 images"], (
        "no terminal, and no time for a second line"
    )
    log = [json.loads(line) for line in Path("log").read_text().splitlines()]
    assert [line["shards_done"] for line in log] == [0, 1, 2, 3, 4] and log[-1]["bad"] == {
        "empty": 1,
        "not_image": 1,
        "truncated": 1,
    }
    before = shard_bytes("shards")

    out, _ = fastfeed("photos", "shards", *SMALL)  # again: there is nothing to do
    assert "in this run" not in out and shard_bytes("shards") == before
    out, _ = fastfeed("photos", "shards", *SMALL, "--json")
    report = json.loads(out)
    assert report["complete"] and report["shards_now"] == 0 and report["bad"]["empty"] == 1
    assert report["bad_images"][0]["uri"].startswith("photos/cats/0000_")

    _, err = fastfeed("photos", "shards", "--size", 32, "--shard-samples", 6, code=2)
    assert "  scaling.size: 24 -> 32\n" in err and "choose another, empty target" in err

    out, _ = fastfeed("status", "shards")
    assert (
        "4 of 4 done, 100.0%" in out
        and "complete" in out
        and "3: 1 empty, 1 not_image, 1 truncated" in out
    )
    assert json.loads(fastfeed("status", "shards", "--json")[0])["shards_done"] == 4
    out, _ = fastfeed("stats", "shards")
    assert (
        "18 of 21, 3 are bad (14.29%)" in out
        and "EXIF orientations" in out
        and "orkers" in out.splitlines()[-1]
    )
    assert json.loads(fastfeed("stats", "shards", "--json")[0])["tally"]["formats"] == {"JPEG": 18}
    out, _ = fastfeed("preview", "shards", "--shards", 1, "--count", 2, "--side", 40)
    assert out.split() == [
        "shards/__job/preview/shard-000000.jpg",
        "shards/__job/preview/index.html",
    ]
    assert Path("shards/__job/preview/index.html").is_file()

    assert "All files match their checksums." in fastfeed("verify", "shards")[0]
    path = Path("shards/shard-000002.tar")
    path.write_bytes(path.read_bytes().replace(b"JFIF", b"JFIX"))
    out, _ = fastfeed("verify", "shards", code=1)
    assert "shard-000002.tar: content differs from what was written (sha256)" in out
    assert (
        "1 shards are broken; run with --fix, then:  fastfeed preprocess resume photos shards"
        in out
    )
    out, _ = fastfeed("verify", "shards", "--fix", "--json", code=1)
    assert json.loads(out)["fixed"] == ["shard-000002"]
    out, _ = fastfeed("status", "shards")
    assert "3 of 4 done, 75.0%" in out
    out, _ = fastfeed("resume", "photos", "shards")
    assert "1 shard in this run" in out and shard_bytes("shards") == before


def test_retry_makes_shards_with_such_reasons_again():
    good = Path("photos/cats/0001.jpg").read_bytes()
    # of another size it would not be the listed one
    Path("photos/cats/0000_0.jpg").write_bytes(b"?" * len(good))
    fastfeed("photos", "shards", *SMALL)
    Path("photos/cats/0000_0.jpg").write_bytes(good)
    out, _ = fastfeed("photos", "shards", *SMALL)
    assert "18 images" in out
    out, _ = fastfeed("retry", "photos", "shards", "--reason", "io_error, timeout")
    assert "in this run" not in out
    out, _ = fastfeed("retry", "photos", "shards", "--reason", "not_image,timeout")
    assert "1 shard in this run" in out and "19 images" in out and "2 bad: 1 " in out
    _, err = fastfeed("retry", "shards", "--reason", "bored", code=2)
    assert err.startswith("fastfeed: --reason must be among not_found, ") and err.endswith(
        " got bored\n"
    )
    _, err = fastfeed("resume", "a", "b", "c", code=2)
    assert err == "fastfeed: expected SRC and DST, got 3 arguments: a b c\n"
    _, err = fastfeed("resume", "photos", code=2)
    assert err == "fastfeed: photos holds no job: start one with fastfeed preprocess SRC photos\n"
    _, err = fastfeed("resume", "shards", code=2)
    assert (
        err
        == "fastfeed: SRC is missing: no source is read that only the plan in shards names. If you"
        " trust it, say\n  fastfeed preprocess resume photos shards\n"
    )


def test_bad_images_are_shown_and_retried_in_part():
    Path("photos/cats/2019").mkdir()
    Path("photos/cats/2019/late.jpg").write_bytes(b"")
    fastfeed("photos", "shards", *SMALL)
    out, _ = fastfeed("status", "shards")
    assert "\nbad, by class\n  cats  4 of 13  2 empty, 1 not_image, 1 truncated" in out
    assert "    fastfeed preprocess bad photos shards --folder cats/2019 -o bad.zip\n" in out
    assert out.count("    fastfeed preprocess update photos shards --repair\n") == 1
    found = json.loads(fastfeed("status", "shards", "--json")[0])
    assert found["bad_by_folder"]["total"] == 2
    assert found["bad_by_reason"]["groups"][0]["images"] == 2
    out, _ = fastfeed("bad", "photos", "shards", "-o", "bad.zip", "--folder", "cats/2019")
    assert out == "1 of 1 bad images -> bad.zip\n" and Path("bad.zip").is_file()
    _, err = fastfeed("bad", "photos", "shards", "-o", "x.zip", "--reason", "oom")
    assert err == "fastfeed: shards: no bad image matches\n" and not Path("x.zip").exists()
    _, err = fastfeed("bad", "photos", "shards", "-o", "shards/train/../x.zip", code=2)
    assert "shards/train/../x.zip is in the job's folder, " in err and "somewhere else" in err
    assert not Path("shards/x.zip").exists()
    _, err = fastfeed("bad", "shards", "-o", "x.zip", "--class", "cats", code=2)
    assert "fastfeed preprocess bad photos shards --class cats -o x.zip" in err
    Path("names.txt").write_text("cats/2019/late.jpg\r\n")
    out, _ = fastfeed("retry", "photos", "shards", "--names", "names.txt")
    assert "1 shard in this run" in out
    Path("names.txt").write_text("cats/0001.jpg\n")
    _, err = fastfeed("retry", "photos", "shards", "--names", "names.txt", code=2)
    assert "1 of these names are not among the bad images that match: cats/0001.jpg" in err
    _, err = fastfeed("retry", "photos", "shards", code=2)
    assert err == "fastfeed: retry what? give --reason, --class, --folder or --names\n"
    _, err = fastfeed("retry", "photos", "shards", "--names", "none.txt", code=2)
    assert "none.txt: No such file" in err
    for command in ("status", "bad"):
        words = ("photos", "--class", "x", "-o", "x.zip") if command == "bad" else ()
        _, err = fastfeed(command, *words, "photos", code=2)
        assert "photos holds no job" in err


def test_parts_of_a_job():
    out, _ = fastfeed("photos", "shards", *SMALL, "--part", "0/2")
    assert "2 shards are not done yet; part 0/2 is done" in out
    assert sorted(path.name for path in Path("shards").glob("*.tar")) == [
        "shard-000000.tar",
        "shard-000002.tar",
    ]
    out, _ = fastfeed("photos", "shards", *SMALL, "--part", "1/2")
    assert "4 of 4 shards" in out and "not done" not in out


def test_too_many_bad_ones():
    words = ("photos", "my shards", *SMALL, "--max-bad", "1")
    _, err = fastfeed(*words, code=3)
    assert (
        "3 images are bad, more than max_bad (--max-bad) allows (1)" in err
        and "photos/cats/0000_0.jpg: empty" in err
    )
    assert err.endswith(
        "to resume, with a larger --max-bad:\n"
        "  fastfeed preprocess photos 'my shards' --size 24 --shard-samples 6 --max-bad 1\n"
        "See docs/failures.md#too-many-bad-files\n"
    )
    out, _ = fastfeed(*words[:-1], "20%")
    assert "4 of 4 shards" in out


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("TargetError('no space left in shards', 28)", 4, "no space left in shards"),
        ("OSError(5, 'Input/output error')", 4, "Input/output error"),
        ("KeyboardInterrupt()", 130, "stopped"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "stopped"),
    ],
)
def test_whatever_ends_a_run_the_command_to_go_on_is_said(monkeypatch, error, code, words):
    def fails(source, dst, recipe, *, on_progress, **_):
        from fastfeed.errors import TargetError  # noqa: F401  for `error`

        found = eval(error)
        if found is not None:
            raise found
        signal.pause()

    monkeypatch.setattr(job_module, "run", fails)
    before = signal.getsignal(signal.SIGTERM)
    _, err = fastfeed(
        "photos",
        "a b",
        "--storage-option",
        "secret=s3cr3t",
        "--target-option=aws_secret_key=x=y",
        "--size=64",
        code=code,
    )
    said, advice, command, *link = err.splitlines()
    assert link == (["See docs/failures.md#target"] if "TargetError" in error else [])
    assert said.startswith("fastfeed: ") and words in said
    assert advice == "finished shards are kept; to resume:"
    assert (
        command == "  fastfeed preprocess photos 'a b' --storage-option secret=..."
        " --target-option=aws_secret_key=... --size=64"
    )
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_dry_run_writes_nothing_and_is_right():
    before = sorted(os.listdir())
    out, _ = fastfeed("photos", "shards", *SMALL, "--dry-run", "--workers", 1)
    assert (
        "21 images were processed" in out
        and "3 of these (14.3%): 1 empty, 1 not_image, 1 truncated" in out
    )
    assert sorted(os.listdir()) == before
    found = json.loads(
        fastfeed("photos", "shards", *SMALL, "--dry-run", "--workers", 1, "--json")[0]
    )
    fastfeed("photos", "shards", *SMALL)
    written = sum(path.stat().st_size for path in Path("shards").glob("shard-*.tar"))
    # a tar ends on a multiple of 10 kB, which is much next to six small pictures
    assert written - 4 * 10_240 <= found["bytes"] <= written and found["free"] > 0
    out, _ = fastfeed("photos", "shards", *SMALL, "--dry-run")
    assert out == "shards: nothing is left to do\n"
    _, err = fastfeed("photos", "shards", "--dry-run", code=2)
    assert "scaling.size: 24 -> 512" in err
    Path("full").mkdir()
    Path("full/x").touch()
    _, err = fastfeed("photos", "full", "--dry-run", code=2)
    assert err == "fastfeed: full is not empty: it contains x but no job; choose an empty folder\n"


def test_a_job_in_a_bucket(s3):
    s3.put("test-cli-preprocess/other", b"x")
    options = [
        word
        for name, value in s3.options.items()
        for word in ("--target-option", f"{name}={value}")
    ]
    place, words = "s3://test-cli-preprocess/shards", (*SMALL, "--val", "0.3", "-f", "mds")
    out, _ = fastfeed("photos", place, *words, *options, "--dry-run", "--json")
    assert json.loads(out)["free"] is None
    out, _ = fastfeed("photos", place, *words, *options)
    assert "4 of 4 shards, 18 images" in out
    assert "complete" in fastfeed("status", place, *options)[0]
    out, _ = fastfeed("preview", place, *options, "--shards", 1)
    assert out.split() == [
        f"{place}/__job/preview/train-shard-000000.jpg",
        f"{place}/__job/preview/index.html",
    ]
    out, _ = fastfeed("verify", place, *options)
    assert "4 intact of 4 done" in out and "All files match their checksums." in out
    s3.put("test-cli-preprocess/shards/train/shard-000001.mds", b"x")
    out, _ = fastfeed("verify", place, *options, code=1)
    assert "train/shard-000001.mds: has 1 bytes, should have " in out
    _, err = fastfeed("stats", f"{place}/nothing", *options, code=2)
    assert len(err.splitlines()) == 1 and "nothing" in err


def test_in_a_process_of_its_own():
    """With worker processes, without any Python around it."""
    program = "import sys; from fastfeed.cli import main; sys.argv[0] = 'fastfeed'; main()"

    def real(*arguments):
        return subprocess.run(
            [sys.executable, *STRICT, "-c", program, "preprocess", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(),
        )

    done = real("photos", "shards", *SMALL, "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 shards, 18 images" in done.stdout
    source_line, hint, *numbers = done.stderr.splitlines()
    assert source_line == STAGES["source"] and "(--shuffle 0) mixes them" in hint
    assert numbers == ["0 of 4 shards, 0 of 21 images", STAGES["finish"]]
    fastfeed("photos", "again", *SMALL)
    assert shard_bytes("again") == shard_bytes("shards"), "workers do not matter"
    _, err = fastfeed("nowhere", "other", code=2)
    assert len(err.splitlines()) == 1 and "nowhere does not exist" in err


def test_jobs_are_merged(tmp_path: Path):
    source(tmp_path / "more", good=4, reasons=())
    fastfeed("photos", "a", *SMALL)
    fastfeed("more", "b", *SMALL)
    _, err = fastfeed("merge", "a", "b", "-o", "c", code=2)
    assert "4 images are in two of the jobs" in err and "--duplicates keep" in err
    out, _ = fastfeed("merge", "a", "b", "-o", "c", "--duplicates", "keep")
    assert out.startswith("c: 6 of 6 shards, 26 images, ")
    assert "All files match" in fastfeed("verify", "c")[0]
    out, _ = fastfeed("status", "c")
    assert "source photos, more" in " ".join(out.split())
    assert "fastfeed preprocess update photos c --repair\n" in out and "preprocess bad" not in out
    out, _ = fastfeed("bad", "photos", "c", "-o", "x.zip")
    assert out.startswith("3 of 3 bad images -> x.zip")
    assert "c: no bad image" in fastfeed("bad", "more", "c", "-o", "y.zip")[1]
    _, err = fastfeed("bad", "c", "-o", "x.zip", code=2)
    assert "fastfeed preprocess bad photos c -o x.zip" in err
    assert "merge takes two or more jobs, got a" in fastfeed("merge", "a", "-o", "d", code=2)[1]
    shard = Path("c/shard-000004.tar")
    whole = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(whole[:-1] + b"x")
    out, _ = fastfeed("verify", "c", code=1)
    assert (
        "1 shards are broken; run with --fix, then: fastfeed preprocess resume more c"
        in " ".join(out.split())
    )
    shard.unlink()
    _, err = fastfeed("resume", "photos", "c", code=2)
    assert "fastfeed preprocess merge a b -o c" in err
    for path in Path("c").rglob("*"):
        os.utime(path, (1, 1))  # not just stopped
    assert "fastfeed preprocess resume more c\n" in fastfeed("status", "c")[0]
    assert fastfeed("resume", "more", "c")[0].startswith("c: 6 of 6 shards")


def test_sources_of_a_merged_job_are_opened_as_before(tmp_path: Path):
    for name, first in (("a", 0), ("b", 8)):
        folder(tmp_path / name, {"x": 3}, (40 + first, 56))
        rows = [f"x/{k:04d}.jpg,{name}{k % 2},{k}" for k in range(3)]
        Path(name, "t.csv").write_text("\n".join(["path,animal,price", *rows]))
        fastfeed(f"{name}/t.csv", f"{name}-job", "--label", "animal", "--columns", "price", *SMALL)
    fastfeed("merge", "a-job", "b-job", "-o", "c")
    (tmp_path / "b/x/new.jpg").write_bytes(jpeg(30, (40, 56)))
    with open("b/t.csv", "a") as file:
        file.write("\nx/new.jpg,b1,9")
    out, _ = fastfeed("update", "b/t.csv", "c", "--add")
    assert "1 image added" in out
    Path("c/shard-000002.tar").unlink()
    for path in Path("c").rglob("*"):
        os.utime(path, (1, 1))
    line = "fastfeed preprocess resume b/t.csv c --label animal --columns price\n"
    assert line in fastfeed("status", "c")[0]
    assert fastfeed("resume", "b/t.csv", "c")[0].startswith("c: 3 of 3 shards, 7 images")


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (("merge", "a", "b", "-o", "c"), "fastfeed.preprocess.job.merge._Merge.run"),
        (("preview", "a"), "fastfeed.preprocess.reports.preview.draw_cells"),
        (("verify", "a", "--fix"), "fastfeed.preprocess.reports.verify.matching_records"),
        (("update", "photos", "a", "--repair"), "fastfeed.preprocess.job.update._Update.run"),
    ],
)
def test_a_command_that_is_terminated_leaves_no_lock(monkeypatch, command, work):
    for name in ("a", "b"):
        fastfeed("photos", name, *SMALL)
    places = [Path(place, "__job/locks") for place in ("a", "b", "c")]
    name = work.rpartition(".")[2]
    owner = resolve_name(work.rpartition(".")[0])
    original = getattr(owner, name)

    def killed(*arguments):
        if not any(map(Path.exists, places)):
            return original(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        return signal.pause()

    monkeypatch.setattr(owner, name, killed)
    _, err = fastfeed(*command, code=143)
    assert "fastfeed: stopped" in err
    assert not any(map(Path.exists, places))


def test_several_images_are_columns_of_a_table():
    names = sorted(Path("photos/dogs").iterdir())[:4]
    rows = [f"{names[k]},{names[k + 1]}" for k in range(3)]
    Path("pairs.csv").write_text("\n".join(["before,after", *rows]))
    images = ("--image", "before=before", "--image", "after=after")
    out, _ = fastfeed("pairs.csv", "shards", *SMALL, *images)
    assert out.startswith("shards: 1 of 1 shards, 3 images, ")
    before = shard_bytes("shards")
    with tarfile.open("shards/shard-000000.tar") as tar:
        members = tar.getnames()
    assert members[:3] == [f"000000000.{name}" for name in ("before.jpg", "after.jpg", "json")]
    out, _ = fastfeed("status", "shards")
    assert "3 of 3" in out or "1 of 1" in out
    assert "All files match" in fastfeed("verify", "shards")[0]
    fastfeed("preview", "shards")
    _, err = fastfeed("resume", "shards", code=2)
    assert " ".join(images) in err
    Path("names.txt").write_text(f"{names[1]}\n")
    out, _ = fastfeed("update", "pairs.csv", "shards", "--remove", "names.txt")
    assert out.startswith("shards: 1 of 1 shards, 2 images, ")
    assert shard_bytes("shards") != before
    assert "pairs.csv" in fastfeed("pairs.csv", "dry", *SMALL, *images, "--dry-run")[0]
    _, err = fastfeed("pairs.csv", "d", "--image", "before", "--image", "after", code=2)
    assert "as in --image left=LEFT --image right=RIGHT" in err
