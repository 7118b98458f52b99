"""The work of a start on the files of one log: survey, verdict, repair."""
