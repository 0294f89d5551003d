"""A complete demo: generated photographs, a small classifier, and a feed that connects them."""
