"""Checks that are no races: accumulators, proxies, mbarriers, operands, undefined values, who waits for whom."""
