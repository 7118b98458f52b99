"""The tiering protocol of docs/tiering.md as small models that a search can exhaust."""
