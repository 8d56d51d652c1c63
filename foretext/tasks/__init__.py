"""Labelled tasks: file formats, labels, metrics, and supervised objectives."""
