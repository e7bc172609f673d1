"""Doors: libraries that use a GPU, connected to the driver of this package. One opens when a program imports its library."""
