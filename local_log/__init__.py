"""One partition on one disk: segments, indexes, epochs, producer state, recovery, retention. Floor 1."""
