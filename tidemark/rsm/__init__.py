"""Work of `tidemark rsm` with storage plugins, below the command line."""
