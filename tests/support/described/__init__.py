"""What the tools that describe a quorum print: a listener with given answers, and records."""
