"""Labelled rows in and predictions out: formats of files, and how a run reads them again."""
