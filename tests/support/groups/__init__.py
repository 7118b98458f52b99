"""Members of groups in many client libraries, the scenarios they play, and a group under fire."""
