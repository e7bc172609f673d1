"""One instruction explained: operands, arithmetic of each device, rules, text to paste."""
