"""Bad input as a table: rows with cases, and what must hold after each of them."""
