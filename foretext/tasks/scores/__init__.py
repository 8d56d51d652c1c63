"""What predictions are worth: scores of rows, tags and spans, and the picture of confusion."""
