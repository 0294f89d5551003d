"""`make gpu-kit`: packages and code in parts, for a machine without a package registry."""
