"""One partition on one disk: segments, indexes, epochs, producers, recovery, retention. Floor 1."""
