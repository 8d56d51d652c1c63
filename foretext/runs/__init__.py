"""The run directory: what is in it, how it is written whole or not at all, and the model that is loaded from it."""
