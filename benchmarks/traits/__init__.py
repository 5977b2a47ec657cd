"""The parts of benchmarks/scheme_traits.py.

plan.py        which trainings, and on which texts
training.py    fleet by fleet: train, measure, record
measures.py    positions, wrong tokens, answers
records.py     the records, read back
page.py        from records to the tables of docs/schemes.md
picture.py     from records to its picture
"""
