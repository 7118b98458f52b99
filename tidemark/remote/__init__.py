"""Looking at the remote tier from outside: what exists, where it lies, and whether it is whole."""
