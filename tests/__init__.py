"""Tests, in the folders of src/mmulator/; `support/` is what they share, `data/` what hardware and ptxas said."""
