"""The command line: one function per verb, listed in `app.py`."""
