"""Which settings suit a corpus: a pilot of short trainings, and what it makes one expect of a full run.

asked.py           what is asked: a text, a budget, what counts most, and settings that hold for every run
candidates.py      what is tried: settings alone, then together, then the last ones with several seeds
folder.py          the pilot on disk
drive.py           the generator of what happens, from the plan to the advice
scoring.py         all runs of a stage on the same tokens
pilot.py           what the runs came to
extrapolation.py   what a full run will reach, from the curves of a short one
power_law.py       how fast curves fall
verdict.py         which setting to take, by what counts most
measures.py        what is measured of it
findings.py        notes on what is known from other texts
answer.py          all of it as plain data
words.py           the advice in sentences and a command
tables.py          the advice in tables
shown.py           the advice as an object that shows itself
advise.py          `unroll.advise`
"""
