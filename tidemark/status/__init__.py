"""The `tidemark status` command: what is asked of a cluster, and what its answers mean."""
