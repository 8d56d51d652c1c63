"""Attention, the transformer block, and its two trunks: causal and bidirectional."""
