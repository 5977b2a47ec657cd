"""The paper: its figures and its table as data, the records of what was measured, and what runs them.

figures.py       which curves each figure holds: data only
records.py       what came out, one compact file a figure
"""
