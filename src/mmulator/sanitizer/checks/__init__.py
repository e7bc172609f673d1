"""Checks other than races: accumulators, proxies, mbarriers, operands, undefined values, and waits."""
