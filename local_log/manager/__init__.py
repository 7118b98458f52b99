"""All logs of a broker: directories, loading, checkpoints, removal."""
