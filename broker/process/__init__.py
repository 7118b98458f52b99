"""What processes of both kinds, brokers and controllers, are put together from."""
