"""Executes Raft's effects: vote file, metadata log, snapshot files, the controller loop."""
