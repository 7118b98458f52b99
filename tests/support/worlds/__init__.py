"""Parts of a broker in this process, real but for network or time."""
