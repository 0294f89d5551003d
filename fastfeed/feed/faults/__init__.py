"""Bad samples and storage outages of a feed."""
