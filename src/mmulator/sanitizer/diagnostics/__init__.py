"""Reports about a launch: why it ended, and what its instruments recorded."""
