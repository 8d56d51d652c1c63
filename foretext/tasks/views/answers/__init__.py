"""Views of the words of a passage given a question, and the spans that answer it."""
