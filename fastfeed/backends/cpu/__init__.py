"""The backend on the CPU: the native extension."""
