"""Perplexity, in-context learning, features, fill, translation and attention."""
