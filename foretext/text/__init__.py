"""Everything before tensors: readers, tokenizers, vocabulary training, token shards, the order of samples."""
