"""The share of JPEGs that the native extension decodes alongside a GPU: how it is measured and
kept, and whose a file is.
"""

import json

import numpy as np
import pytest

from fastfeed.backends.decode_share import DecodeShare, decodes_on_cpu, read_measured


def told(share, cpu, gpu, alone, batches=40):
    """Batches of 1,000 samples at these rates, in samples per second: of either side together, and
    of the GPU alone.
    """
    for _ in range(batches):
        n = round(1000 * share.value)
        share.note((n, n / cpu), (1000 - n, (1000 - n) / (gpu if n else alone)))


def test_the_share_is_where_both_sides_end_together(tmp_path):
    path = tmp_path / "decode.json"
    share = DecodeShare(path, "here", None)
    assert not share.measured
    told(share, 300, 900, alone=1000)
    assert share.measured and share.value == pytest.approx(0.25, abs=0.01)
    assert json.loads(path.read_text()) == {"here": pytest.approx(0.25, abs=0.01)}
    again = DecodeShare(path, "here", None)
    assert again.measured and again.value == pytest.approx(share.value, abs=1e-3)
    assert not DecodeShare(path, "elsewhere", None).measured
    assert DecodeShare(path, "here", 0.7).value == 0.7


def test_a_kernel_that_takes_the_gpus_cores_gets_nothing(tmp_path):
    """As on an H200 with 16 cores: 8,800 images/s together, 10,800 by the GPU alone."""
    share = DecodeShare(tmp_path / "decode.json", "here", None)
    told(share, 3500, 5300, alone=10_800)
    assert share.measured and share.value == 0.0
    assert DecodeShare(tmp_path / "decode.json", "here", None).value == 0.0


def test_a_file_that_is_not_ours_or_cannot_be_written_costs_nothing(tmp_path):
    path = tmp_path / "decode.json"
    path.write_text("[1, 2")
    assert read_measured(path) == {}
    path.write_text("[1, 2]")
    assert read_measured(path) == {}
    share = DecodeShare(tmp_path / "decode.json" / "below a file", "x", None)
    told(share, 100, 100, alone=100, batches=20)
    assert share.measured and share.value == 0.5


def test_batches_that_say_nothing_of_a_phase_are_left_out(tmp_path):
    """Such as those begun in the phase before, or without a sample for the GPU."""
    share = DecodeShare(tmp_path / "decode.json", "x", None)
    share.note((0, 0.0), (10, 0.1))
    share.note((10, 0.1), (0, 0.0))
    assert not share.measured and share.value == 0.3
    told(share, 300, 900, alone=100, batches=3)
    assert share.value == 0.0, "the GPU alone"
    for _ in range(40):
        share.note((500, 0.1), (500, 0.1))
    assert share.value == 0.0 and not share.measured
    told(share, 300, 900, alone=100, batches=15)
    assert share.measured and share.value == pytest.approx(0.25, abs=0.01)


def test_whose_a_file_is_depends_on_its_bytes_alone():
    blobs = [np.random.default_rng(k).bytes(1000) for k in range(2000)]
    few, more = ([decodes_on_cpu(blob, share) for blob in blobs] for share in (0.25, 0.5))
    assert 400 < sum(few) < 600 and 900 < sum(more) < 1100
    assert all(b or not a for a, b in zip(few, more, strict=True)), (
        "a larger share takes more, and leaves none"
    )
    assert not any(decodes_on_cpu(blob, 0.0) for blob in blobs) and all(
        decodes_on_cpu(blob, 1.0) for blob in blobs
    )
    assert decodes_on_cpu(memoryview(blobs[0]), 0.25) == few[0]
