"""Opens the tiered log that a user names: of a cluster, or of a bucket alone."""
