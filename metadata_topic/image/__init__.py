"""The cluster's metadata as an immutable image, made from records."""
