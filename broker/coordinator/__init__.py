"""Coordinators of groups: what members and offsets there are, and who may change them."""
