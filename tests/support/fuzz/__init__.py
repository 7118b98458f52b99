"""Random requests by the grammar of the message schemas, and what a broker must make of them."""
