"""Data sets of Hugging Face, read without its packages: files of a repository, or saved ones."""
