"""Survey and plan of a job: selection, duplicates, splits, size estimates."""
