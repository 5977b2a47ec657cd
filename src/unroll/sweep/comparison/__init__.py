"""Compares schemes on one corpus at equal budgets, and says what to take, with how sure that is.

asked.py        what is compared: schemes, k1 and seeds as experiments; which validation set
folder.py        the comparison's own files in its sweep's folder
drive.py        the generator of what happens, from the plan to the answer
paired.py       statistics: means over seeds, differences paired by seed, how sure a winner is
readings.py     what the curves of the runs say: final, best, at equal seconds, how they rise
measures.py     what is measured of the trained models: costs of sampling, copying, drift
findings.py     notes on what other comparisons found, where this one's data show it
answer.py       all of it as one object, and as plain data
words.py        the answer in three sentences and a command
tables.py       the answer in tables
shown.py        the answer as an object that shows itself
numbers.py      how numbers read
compare.py      `unroll.compare`
"""
