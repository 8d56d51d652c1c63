"""What is put on a trunk for a task, and its losses."""
