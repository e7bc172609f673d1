"""Memory: the windows that give access to it (windows.py), loads and stores, atomic operations, reductions."""
