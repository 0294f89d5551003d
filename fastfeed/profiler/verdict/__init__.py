"""What costs most and what to change, or why the trace does not support a verdict."""
