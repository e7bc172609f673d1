"""Doors: libraries of others that say they have a GPU, led to the driver. One opens when a program imports its library."""
