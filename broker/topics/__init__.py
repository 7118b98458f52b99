"""Creation of topics, and look-ups in the metadata image."""
