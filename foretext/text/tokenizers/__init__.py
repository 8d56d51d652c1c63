"""The kinds of tokenizer, one base for all, and how a vocabulary is learned."""
