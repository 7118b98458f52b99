"""Values that tests start from."""
