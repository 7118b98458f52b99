"""Remote stores: real ones, ones that fail, ones in memory, and their audit."""
