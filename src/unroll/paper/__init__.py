"""The paper: its figures and its table as data, the records of what was measured, and what makes them.

figures.py         which curves each figure holds: data only
records.py         what came out, one compact file a figure
experiments.py     from a place in the paper's grid to an experiment, at any scale
planning.py        which trainings stand side by side
timing.py          the table, measured
reproduction.py    from figures to records, resumable at any moment
"""
