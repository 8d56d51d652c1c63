"""From text, or pairs, to a pre-trained run."""
