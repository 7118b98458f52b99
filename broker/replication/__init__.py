"""Followers: fetches from the leaders of other brokers, and appends of the fetched records."""
