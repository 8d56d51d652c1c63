"""The demonstration, on text that is already on the machine."""
