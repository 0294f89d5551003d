"""What people and programs read of an analysis. Nothing here decides: every word is from a `Result`.

text       one screen in a terminal          `fastfeed analyze FILE`
page       one HTML page, no network         `--html`
document   a dict with a stable schema       `--json`
perfetto   tracks for ui.perfetto.dev        `--perfetto`
"""
