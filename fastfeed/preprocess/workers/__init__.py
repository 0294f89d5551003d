"""Worker processes, their supervision, and their memory."""
