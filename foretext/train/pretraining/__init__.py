"""From text, or sentence pairs, to a pre-trained run."""
