"""Matrix descriptors of wgmma: fields, meaning, addresses, what is wrong, bank conflicts, CuTe layouts."""
