"""Asynchronous operations: copies, tensor copies, mbarriers, the queue of pending operations, and waiting lanes."""
