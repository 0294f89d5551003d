"""Training steps: which are steady, where their time goes, and how much of it is lost to input."""
