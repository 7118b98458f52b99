"""One layout of segments over any store of objects, for most plugins."""
