"""What the controllers' listener serves."""
