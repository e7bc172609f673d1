"""An element beside its value in another run, and beside a value that somebody expects."""
