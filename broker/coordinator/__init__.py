"""Coordinators of consumer groups: members, generations and committed offsets."""
