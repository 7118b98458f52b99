"""Random requests by the grammar of the message schemas, and every pure decoder."""
