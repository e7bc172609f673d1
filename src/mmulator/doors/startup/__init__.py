"""A folder for PYTHONPATH: Python reads its sitecustomize.py as it starts."""
