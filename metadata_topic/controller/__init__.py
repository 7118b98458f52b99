"""The controller's decisions: pure functions that return records and a response."""
