"""The explorer: pages that show layouts, descriptors, formats and sums, from tables that this package makes."""
