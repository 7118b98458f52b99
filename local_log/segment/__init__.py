"""One segment: its file, its indexes, reading it and repairing it."""
