"""Snapshots of the metadata: made, kept, served and fetched."""
