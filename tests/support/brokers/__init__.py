"""A broker as a process: started, killed, written to and read from as clients do."""
