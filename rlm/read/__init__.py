"""Remote reads: caches, loads, read-ahead, and the readers.

Knows nothing of `rlm.maintenance`.
"""
