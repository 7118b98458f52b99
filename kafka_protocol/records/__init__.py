"""Record batches (magic 2): the header view of the hot path, and records where needed."""
