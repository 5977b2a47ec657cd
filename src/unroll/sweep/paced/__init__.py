"""Trains the runs of a folder within a budget of time: all of them to one batch, however fast the machine is.

clock.py      the seconds that were spent, by this process and those before it
trial.py      what training and scoring cost here, before anything is trained
rounds.py     how many batches fit into the budget: all runs to one batch, then all to a later one
folder.py     the budget and the rounds on disk, beside the files of a sweep
paced.py      the rounds themselves, resumable at any moment
"""
