"""Record batches to Arrow columns: walk, check, inflate, and all varints of a group at once."""
