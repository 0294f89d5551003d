"""The version of the package, read by the build as well."""

__all__ = ["__version__"]

__version__ = "0.2.0"
