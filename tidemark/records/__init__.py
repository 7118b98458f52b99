"""Records on the command line: what `tidemark produce` and `tidemark consume` stand on."""
