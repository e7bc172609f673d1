"""A Dask cluster of two processes on this machine, for all tests of the folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import cluster


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    with cluster(2) as made:
        yield made
