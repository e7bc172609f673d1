"""Records of what a launch did, and questions about them: where time went, what happened when, why an element is wrong."""
