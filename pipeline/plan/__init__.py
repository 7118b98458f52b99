"""Which bytes hold the wanted rows, and how they are split. Pure: no store, no socket, no clock."""
