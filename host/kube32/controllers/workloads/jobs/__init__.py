"""The Job controller, and what counts pods that end exactly once."""
