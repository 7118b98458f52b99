"""Where it is found out which segments are live: a cluster, or a bucket alone."""
