"""A job from start to finish, with its progress."""
