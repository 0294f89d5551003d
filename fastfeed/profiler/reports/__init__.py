"""Reports of an analysis. They only present a `Result`: no analysis happens here.

text       one screen in a terminal          `fastfeed analyze FILE`
page       one HTML page, no network         `--html`
document   a dict with a stable schema       `--json`
perfetto   tracks for ui.perfetto.dev        `--perfetto`
"""
