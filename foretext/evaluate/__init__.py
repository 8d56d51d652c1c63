"""Perplexity, task scores, reports."""
