"""The heads on a trunk for each kind of task, and their losses."""
