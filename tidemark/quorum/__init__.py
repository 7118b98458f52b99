"""The metadata quorum, asked from outside."""
