"""Dask clusters of processes on this machine."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of a cluster of so many processes with a thread each."""
    from distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ports that others use
        started = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1", silence_logs=50
        )
    with started, Client(started, set_as_default=False) as client:
        yield client
