"""Views of words in their sentences, and the chain of their tags."""
