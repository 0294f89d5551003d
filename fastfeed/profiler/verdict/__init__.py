"""What costs most and what to change, or why that cannot be said."""
