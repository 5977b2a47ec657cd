"""The parts of benchmarks/scheme_traits.py.

plan.py        what is trained, and on what
training.py    fleet by fleet: trained, measured, recorded
measures.py    positions, wrong tokens, answers
records.py     what was recorded, read back
page.py        from records to the tables of docs/schemes.md
picture.py     and to its picture
"""
