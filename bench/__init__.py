"""Speed and memory, measured as ratios in one run. `python -m bench` lists and runs them; each is a module of its own
that also runs alone, as `python -m bench.pretraining`."""
