"""Topics and records that a development broker begins with: `tidemark dev --seed`."""
