"""Followers: what is fetched from the leaders of other brokers, and what is done with it."""
