"""Attention over what is read, the block, and its two trunks: causal and two-sided."""
