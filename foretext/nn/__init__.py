"""The parts that systems are built of: attention, transformer blocks, losses, heads."""
