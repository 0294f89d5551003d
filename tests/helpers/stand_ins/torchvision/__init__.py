"""Stands in for torchvision, whose builds fit one build of PyTorch each, where there is none."""
