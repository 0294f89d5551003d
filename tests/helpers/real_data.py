"""Where real photographs and traces are, which are not part of this repository: `python
real_data.py` prints it.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "FASTFEED_TEST_DATA"
_NEXT_TO_CHECKOUT = Path(__file__).resolve().parents[3] / "shared" / "data"  # where CI puts it


def real_data() -> Path:
    """The folder that the environment names, or the one that CI puts next to the checkout; it may
    be missing.
    """
    return Path(os.environ.get(VARIABLE) or _NEXT_TO_CHECKOUT)


if __name__ == "__main__":
    print(real_data())
