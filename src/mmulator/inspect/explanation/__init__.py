"""What is known of one instruction: operands, arithmetic of each device, rules, text to paste."""
