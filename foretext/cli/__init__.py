"""The command line: one function a verb; `app.py` names them all."""
