"""The metadata log on the disk: batches, survey, verdict, flushed end."""
