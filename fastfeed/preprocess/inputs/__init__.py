"""Sources named by users, with labels and metadata columns, and reading ahead."""
