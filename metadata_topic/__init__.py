"""The Raft-replicated metadata log `__cluster_metadata`: quorum, image, controller. Floor 2."""
