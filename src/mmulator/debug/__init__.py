"""The debugger of a launch."""
