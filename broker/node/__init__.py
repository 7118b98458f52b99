"""This node: its directories, its lives, its place in the cluster, its recurring tasks."""
