"""As in torchvision."""
