"""What tests of preprocess share."""
