"""Evidence: what tries the product and keeps the answers. Nothing of the product, nor of tools/, imports it.

Run from the root of the repository: `python -m evidence.judges`. What each part asks, and where its answer is kept:

- `capture/`: what does a GPU compute? Programs that run there; `tests/data`, `tests/kernels`.
- `study/`: which rule explains what was captured? Coefficients of approximate functions, liberties of ptxas.
- `fuzz/`: does random input crash a process, or part two ways of running it? docs/fuzzing.md.
- `judges/`: which defects that others planted are found, and have the sums that others published the same bits? `judges/results`.
- `projects/`: do kernels of public projects run, and is what the sanitizer says of them true? `judges/results/projects.json`.
- `suites/`: which tests that others wrote pass? `suites/results`.
- `evaluate.py`: do the claims of docs/evaluation.md hold for cases that nobody has seen?
- `pages.py`: what the documentation says of all this.
"""
