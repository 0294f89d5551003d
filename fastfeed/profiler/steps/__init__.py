"""Training steps: which are steady, what they are made of, how much of them is input."""
