"""Two records of one suite, made by two builds: which kernels' bits changed, since which line, and with which algebra.

    suites.py   what a record has, and which launches of two records belong together
    changes.py  a pair of launches, and a kernel of which the pairs are
    page.py     the answer for people, and as a page
"""
