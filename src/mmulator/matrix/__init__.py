"""Matrix instructions: what they compute, where their elements lie, and answers to questions about both.

`numerics/` is the exact model and `twin/` computes the same bits, fast; `layouts/` says where elements lie; `instruction/` runs
one instruction on arrays; `inspect/` answers questions as data, and `explore/` shows the answers in a browser.
"""
