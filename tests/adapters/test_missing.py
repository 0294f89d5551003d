"""A framework that is not there is an error that names the pip command."""

import sys

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import MissingExtra


@pytest.mark.parametrize(
    ("method", "package", "command"),
    [("to_keras", "keras", "pip install 'fastfeed[keras]'"), ("to_tfdata", "tensorflow", "pip install 'fastfeed[tf]'")],
)
def test_missing_frameworks(monkeypatch, method, package, command):
    monkeypatch.setitem(sys.modules, package, None)  # import raises, as without it
    for module in ("fastfeed.adapters.keras", "fastfeed.adapters.tfdata"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2) as feed:
        with pytest.raises(MissingExtra, match="needs") as caught:
            getattr(feed, method)()
    assert command in str(caught.value)
    assert isinstance(caught.value, ImportError)
