"""The command line.

`verbs/` has one file for each verb. The files beside it are what all verbs share: `app.py` lists the verbs, runs one
and turns every failure into one line; `input.py` has the options that several verbs have, and reads runs, rows and
texts; `output.py` shows results and progress.
"""
