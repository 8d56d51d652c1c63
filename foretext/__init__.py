"""Foretext turns a pile of unlabelled text and a few labels into a working language model."""

__version__ = "0.1.0"
