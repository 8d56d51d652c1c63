"""Transfer on real data: one script an experiment, see README.md."""
