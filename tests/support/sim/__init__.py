"""The simulated side of every port: what tests and simulations stand on."""
