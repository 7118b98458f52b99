"""The partitions that a tier owns: taken over, copied, expired.

Knows nothing of `rlm.read`.
"""
