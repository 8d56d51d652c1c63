"""Metrics of rows, tags and spans, and the picture of the confusion matrix."""
