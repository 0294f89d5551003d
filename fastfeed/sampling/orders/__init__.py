"""Orders of samples beyond every sample once: one module each, and what they share."""
