"""Text and HTML reports of a proof."""
