"""Matrix instructions: wgmma, wmma, moves of matrices. The products themselves are in matrix/twin/."""
