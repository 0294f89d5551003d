"""Pictures of report pages: `python tests/helpers/profiler/screenshots.py PAGE.html... --out DIR`.

Each page is taken at the width of a phone and of a desk, in light and in dark: NAME-360-light.png
and so on. Without a page, those of tests/helpers/profiler/results_made.py are taken.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]

from helpers.profiler.browser import Browser, browser, found  # noqa: E402  after the path is set

WIDTHS = (360, 1280)


def take(chrome: Browser, page: Path, out: Path, widths: tuple[int, ...] = WIDTHS) -> list[Path]:
    """Every picture of one page; the files written."""
    images = []
    for width in widths:
        for dark in (False, True):
            with chrome.tab(page, width, dark=dark, touch=width < 600) as tab:
                path = out / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                path.write_bytes(tab.picture())
                images.append(path)
    return images


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pages", nargs="*", type=Path, help="HTML files of `fastfeed analyze --html`"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("screenshots"), help="folder for the pictures"
    )
    parser.add_argument(
        "--width", type=int, action="append", help="pixels; 360 and 1280 if not said"
    )
    arguments = parser.parse_args()
    if found() is None:
        print(
            "No Chromium was found; install it (Debian: apt-get install chromium).", file=sys.stderr
        )
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    pages = arguments.pages or _examples(arguments.out)
    with browser() as chrome:
        for page in pages:
            for path in take(chrome, page, arguments.out, tuple(arguments.width or WIDTHS)):
                print(path)
    return 0


def _examples(out: Path) -> list[Path]:
    from fastfeed.profiler.reports.page import page
    from helpers.profiler import results_made

    pages = []
    for name, make in results_made.EVERY.items():
        pages.append(out / f"{name}.html")
        pages[-1].write_text(page(make()), encoding="utf-8")
    return pages


if __name__ == "__main__":
    sys.exit(main())
