"""Attention by distance over a memory: Transformer-XL and XLNet."""
