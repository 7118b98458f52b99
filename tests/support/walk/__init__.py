"""A broker through many lives on damaged files, and what must hold in each."""
