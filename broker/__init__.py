"""One server process: network, handlers, partitions, wiring. Floor 4."""
