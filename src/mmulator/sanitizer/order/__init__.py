"""Happens-before: vector clocks of threads, of asynchronous operations and of the objects for which they wait."""
