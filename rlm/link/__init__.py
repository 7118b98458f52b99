"""What passes between broker and tier: messages, and how they get across."""
