"""Trainers without a feed: the stack of their main thread, sampled from outside by py-spy."""
