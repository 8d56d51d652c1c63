"""The command line: one file a verb; `app.py` names them all."""
