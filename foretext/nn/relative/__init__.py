"""Relative attention over a memory: Transformer-XL and XLNet."""
