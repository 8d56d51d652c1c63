"""From states to tokens: the tied, adaptive and sampled softmax, and their losses."""
