"""Assembly of one batch: reading, decoding, augmenting, placing rows."""
