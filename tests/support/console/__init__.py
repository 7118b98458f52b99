"""The page at `/`: what it is made of, and a browser that loads it."""
