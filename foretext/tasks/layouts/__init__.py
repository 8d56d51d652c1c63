"""Input transformations: how the texts of a row become token sequences, and how long ones are cut."""
