"""Views of whole rows: one text, a pair, or a context with its choices."""
