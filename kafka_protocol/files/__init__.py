"""Formats of the files in a log directory, as bytes to values and back."""
