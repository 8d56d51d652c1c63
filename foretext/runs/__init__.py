"""The run directory: its files, atomic commits, and the model loaded from it."""
