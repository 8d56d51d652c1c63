"""Whole words: word lists, their characters, and their vectors."""
