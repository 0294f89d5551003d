"""Words of `fastfeed preprocess` and what they mean: values, commands and paths, help."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from helpers.commands import CliRunner

from fastfeed.cli import app
from fastfeed.cli.preprocess import run as preprocess_run
from fastfeed.errors import ConfigError
from fastfeed.preprocess import Encoding, Limits, Packing, Recipe, Scaling, Selection
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.image_recipe import FILTERS, IMAGES, MODES
from fastfeed.preprocess.model.recipe import FORMATS


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Arguments of `run` for a command line; nothing is done."""
    monkeypatch.chdir(tmp_path)
    seen = []

    def run(source, dst, recipe, **more):
        seen.append((dst, recipe, more))
        raise KeyboardInterrupt

    monkeypatch.setattr(job_module, "run", run)

    def ask(*words):
        done = CliRunner().invoke(app, ["preprocess", *words])
        if done.exit_code != 130:
            raise (
                done.exception
                if isinstance(done.exception, ConfigError)
                else AssertionError(done.output)
            )
        return seen.pop()

    return ask


def test_without_options_it_is_the_recipe_of_python(asked):
    dst, recipe, more = asked("src", "dst")
    assert (dst, recipe) == ("dst", Recipe())
    assert more["engine"] == "local" and not more["append"] and more["timeout_s"] == 120
    assert all(
        more[name] is None for name in ("workers", "memory", "max_bad", "part", "target_storage")
    )


def test_all_options(asked):
    words = """
        src dst --size 512x768 --mode contain --filter area --enlarge --matte #102030 --fill black
        --full-decode
        --image-format webp --quality 80 --subsampling 4:4:4 --optimize --keep-small -f parquet --shard-samples 50
        --shuffle 3 --val 0.05 --split-seed 7 --min-side 100 --max-aspect 3 --only-formats jpeg,PNG
        --max-pixels 1000000 --dedupe near --keep newest --mirrored --distance 6 -w 3 --memory 2GB --ray auto --part 1/4
        --max-bad 1% --timeout 5 --target-option anon=true
    """
    _, recipe, more = asked(*words.split())
    assert recipe == Recipe(
        Scaling((512, 768), "contain", "area", True, (), (16, 32, 48), (0, 0, 0), full_decode=True),
        Encoding("webp", 80, "4:4:4", True, True),
        Limits(100, 3.0, ("JPEG", "PNG"), 1_000_000),
        Packing("parquet", 50),
        Selection(
            shuffle=3,
            val=0.05,
            split_seed=7,
            dedupe="near",
            distance=6,
            keep="newest",
            mirrored=True,
        ),
    )
    assert (more["workers"], more["memory"], more["engine"], more["part"]) == (
        3,
        "2GB",
        "ray",
        (1, 4),
    )
    assert (more["max_bad"], more["timeout_s"], more["target_storage"]) == (
        0.01,
        5.0,
        {"anon": True},
    )


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--buckets 512x768,768X512", Scaling(512, "buckets", buckets=((512, 768), (768, 512)))),
        ("--size 64 --mode cover --matte White", Scaling(64, "cover")),
        ("--size 64×32 --mode exact", Scaling((64, 32), "exact")),
    ],
)
def test_sizes(asked, words, part):
    assert asked("src", "dst", *words.split())[1] == replace(Recipe(), scaling=part)


@pytest.mark.parametrize(
    ("text", "value"), [("1%", 0.01), ("0.5", 0.5), ("100", 100.0), ("0", 0.0), ("99.5 %", 0.995)]
)
def test_max_bad_is_a_share_or_a_count(asked, text, value):
    assert asked("src", "dst", "--max-bad", text)[2]["max_bad"] == value


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--size 0", "size must be in [1, 65500] pixels, a side or (height, width), got 0"),
        ("--size big", "--size must be pixels, height x width, such as 512 or 512x768, got 'big'"),
        ("--size 512x768", "size must be one length for mode 'short', got (512, 768)"),
        (
            "--buckets 5",
            "--buckets must be pixels, height x width, such as 512x768,768x512, got '5'",
        ),
        (
            "--mode widest",
            "mode must be one of short, long, cover, contain, exact, none, buckets, got 'widest'",
        ),
        (
            "--matte teal",
            "--matte must be a color such as '#ffffff', white, black, gray, got 'teal'",
        ),
        (
            "--format zip",
            "format must be one of webdataset, tfrecord, parquet, mds, raw, got 'zip'",
        ),
        ("--quality 0", "quality must be an integer in [1, 100], got 0"),
        ("--val 1", "val must be in [0, 1), the fraction of images in val/, got 1.0"),
        (
            "--max-bad 100%",
            (
                "--max-bad must be a percentage below 100%, such as 1%, or a count, such as 100,"
                " got '100%'"
            ),
        ),
        ("--max-bad 2.5", "got '2.5'"),
        ("--part 4/4", "part must be in [0, 4), got 4"),
        ("--part 4", "got '4'"),
        (
            "--storage-option key",
            "--storage-option must be name=value, such as anon=true, got 'key'",
        ),
        ("--target-option key", "--target-option must be name=value, such as anon=true, got 'key'"),
        ("--json-log none/log", "cannot write the log none/log: No such file or directory"),
        ("--size 64 --mode long --format raw", 'format "raw" holds one array per shard'),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_done(asked, words, error, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(error)):
        asked("src", "dst", *words.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "src dst --size 64",
        "--size 64 src dst",
        "run src dst --size 64",
        "run status dst --size 64",
        "--size 64 -- status dst",
        "./status dst --size 64",
    ],
)
def test_run_need_not_be_said(asked, words):
    dst, recipe, _ = asked(*words.split())
    assert (dst, recipe.scaling.size) == ("dst", 64)


def test_a_folder_that_is_called_like_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stats").mkdir()
    done = CliRunner().invoke(app, ["preprocess", "stats", "my shards", "--json"])
    assert (
        done.stderr
        == "fastfeed: stats is interpreted as the command; for the folder of that name use: "
        "fastfeed preprocess run stats 'my shards' --json\n"
    )


def test_secrets_are_not_repeated():
    words = [
        "a",
        "b",
        "--storage-option",
        "aws_secret_access_key=1",
        "--target-option=TOKEN=2",
        "--labels=key.csv",
    ]
    assert (
        preprocess_run.command(words)
        == "fastfeed preprocess a b --storage-option aws_secret_access_key=..."
        " --target-option=TOKEN=... --labels=key.csv"
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_help_shows_options_in_groups_and_commands(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = CliRunner().invoke(app, ["preprocess", "--help-all"]).stdout
    for panel in ("Scaling", "Encoding", "Shards", "Which images", "Commands"):
        assert f"\n{panel}:\n" in said
    for word in (*MODES, *FILTERS, *IMAGES, *FORMATS, "--dry-run", "--json-log"):
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", said), word
    assert max(map(len, said.splitlines())) <= columns and "…" not in said
    assert "3 more bad images than --max-bad" in " ".join(said.split())
    for command in ("run", "resume", "retry", "bad", "status", "stats", "verify", "preview"):
        assert re.search(rf"\n  {command} ", said)
        done = CliRunner().invoke(app, ["preprocess", command, "--help"])
        assert done.exit_code == 0 and "DST" in done.stdout
