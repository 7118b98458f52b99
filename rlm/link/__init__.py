"""The link between broker and tier: its messages and its transport."""
