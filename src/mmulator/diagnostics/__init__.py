"""What is said of a launch: why it ended, what its instruments saw."""
