"""Whole words: lists of them, their characters, their vectors out of files."""
