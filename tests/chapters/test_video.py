"""Video instructions: what the specification says of saturation is not what a GPU does."""

from tests.support import rows, vectors

test_vectors = vectors.replay("video")
test_rows = rows.run_or_refused("video")
