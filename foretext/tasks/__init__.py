"""Labelled tasks: file formats, labels, metrics, and the supervised objectives."""
