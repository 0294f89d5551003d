"""A complete demonstration: made photographs, a small classifier, and the feed between them."""
