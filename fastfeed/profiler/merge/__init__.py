"""The feed's own timeline within a GPU trace."""
