"""What operators and machines look at: health, metrics, over HTTP."""
