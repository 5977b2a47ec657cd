"""Beyond the paper: more points of the plane of training procedures, other splits, and where scheme 4's excess lies.

parts.py        which settings each part trains: data only
experiments.py  from a setting to an experiment, at any size
positions.py    the loss by position in the test set, from zeros and from carried states
records.py      what came out, one compact file a part
ngrams.py       what counting reaches on the test set of every split
page.py         docs/beyond.md and its pictures: comparing.py, tables.py, split_tables.py, pictures.py
study.py        from parts to records, a fleet at a time
"""
