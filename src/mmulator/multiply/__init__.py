"""Matrix products of fragments: tables from `layouts`, arithmetic from the numerics twin, compiled into one call."""
