"""What a user names, as photographs with labels and all that travels along; their bytes, read ahead."""
