"""What `tidemark rsm` does with storage plugins, below the command line."""
