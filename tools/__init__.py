"""What makes the product: its pages, its site, object code for a wheel, a release, tables of versions and processors, measures.

Run from the root of the repository: `python -m tools.house`. What tries the product is in evidence/; nothing here imports it.
"""
