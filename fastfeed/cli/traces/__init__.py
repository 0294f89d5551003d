"""Commands on traces: analyze, diff, profile, sweep."""
