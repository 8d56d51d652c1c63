"""The order in which examples are seen: pure functions of (seed, epoch, index)."""
