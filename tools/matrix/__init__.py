"""mmulator with the versions of other software that users have: a virtual environment for each, a program at each door."""
