"""Container formats: sizes, orientation and color of image files, read from their headers."""
