"""Everything before a tensor: readers, tokenizers, vocabulary training, token shards, the order of samples."""
