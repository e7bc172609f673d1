"""Matrix instructions: wgmma, wmma, moves of matrices. Products themselves are in twin/."""
