"""The controller's decisions: pure functions of an image and a request that return records and a response."""
