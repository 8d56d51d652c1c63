"""Labelled rows in, predictions out: file formats, and how a run reads them again."""
