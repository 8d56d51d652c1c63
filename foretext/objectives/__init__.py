"""Pre-training objectives: how text becomes a batch, and a batch a loss."""
