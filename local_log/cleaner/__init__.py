"""Compaction: of each key the newest record stays; rules, the pass over files, and who runs it."""
