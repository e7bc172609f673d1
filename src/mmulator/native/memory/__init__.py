"""Memory: the door to it (windows.py), loads and stores, atomic operations, reductions."""
