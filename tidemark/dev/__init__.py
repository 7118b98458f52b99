"""The `tidemark dev` command: settings and several controllers."""
