"""Two results side by side; limits for CI."""
