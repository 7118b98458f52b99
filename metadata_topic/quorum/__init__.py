"""What carries Raft's effects out: vote file, metadata log, snapshot files, the controller loop."""
