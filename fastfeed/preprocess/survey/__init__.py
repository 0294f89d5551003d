"""A survey of all photographs before the plan is made, and what is decided from it."""
