"""The paper: its figures and its table as data, the records of what was measured, and what makes them.

figures.py         which curves each figure holds: data only
records.py         what came out, one compact file per figure
experiments.py     from a place in the paper's grid to an experiment, at any scale
planning.py        which trainings stand side by side
timing.py          the table, measured
reproduction.py    from figures to records, resumable at any moment
literature.py      the works that the paper sorts by scheme
claims/            each claim as a function of the records, and its verdict
verdicts_in_words.py  verdicts as Markdown, and what intervals over seeds changed
stranger.py        scheme 4 in plain torch beside Unroll: the record, its table and picture
pictures.py        the figures, in the paper's form
page.py            docs/paper.md: verdicts, table and figures around prose
"""
