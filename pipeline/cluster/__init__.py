"""Questions to a running cluster, asked as any client may. Without pyarrow: tools use it, too."""
