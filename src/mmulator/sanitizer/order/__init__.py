"""Happens-before: vector clocks of threads, of asynchronous operations and of what they wait for."""
