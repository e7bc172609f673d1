"""Threads: the scheduler, barriers, clusters, calls, control flow, exchange between the lanes of a warp."""
