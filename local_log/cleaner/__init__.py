"""Compaction, by which only the newest record of a key stays: rules, passes, and their process."""
