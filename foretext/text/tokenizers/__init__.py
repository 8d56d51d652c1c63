"""The kinds of tokenizer, their base class, and vocabulary training."""
