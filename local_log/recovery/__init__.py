"""Recovery of one log's files at a start: survey, verdict, repair."""
