"""Files and directories, damaged in every way, and what a start may make of them."""
