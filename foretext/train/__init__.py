"""The one loop for pre-training and fine-tuning, and the run directory that it writes."""
