"""One small program for each client library; README.md has the protocol that all of them speak."""
