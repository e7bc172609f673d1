"""Faults and deadlocks as exceptions with sentences: from the state of a stopped CTA to an ExecutionFault."""
