"""The active controller: one term, its decisions and its deadlines."""
