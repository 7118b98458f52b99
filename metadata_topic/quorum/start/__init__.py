"""From a formatted directory to a replica that may start."""
