"""What a start makes of the files of one log: survey, verdict, repair."""
