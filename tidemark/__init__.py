"""The face of Tidemark: command line and embedding API."""
