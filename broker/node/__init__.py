"""This node: its directories, its incarnations, its place in the cluster, its recurring tasks."""
