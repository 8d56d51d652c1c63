"""One file a paper."""
