"""Tools of those who work on mmulator, run from the root of the repository: `python -m tools.capture.rows`."""
