"""A launch whose blocks run on other machines: ranges of clusters on the workers of a Dask cluster, each on a copy of the memory.

    memory.py    what a launch has of memory, as it is sent, and laid out anew
    worker.py    a range of clusters there
    launch.py    the whole
"""
