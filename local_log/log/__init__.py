"""One partition: append, read, flush, truncate, retention."""
