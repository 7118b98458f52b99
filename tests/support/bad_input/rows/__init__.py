"""The rows, a module each kind: importing one puts its cases into the table."""
