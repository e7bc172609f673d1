"""tcgen05 explained: instruction descriptors, and layouts in tensor memory."""
