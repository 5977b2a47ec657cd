"""Unroll against its peers, on this machine, side by side in one process. In the order of the data:

    shapes.py         what is trained: an architecture under a training procedure
    numerics.py       the precisions, and how torch is told to keep to one
    capture.py        a training step as a CUDA graph
    peers.py          what a user of torch would write instead, one class a way
    contestants.py    Unroll and the peers behind one `step()`
    plan.py           which contestants meet over which shapes
    measure.py        their times, block by block in alternating order
    floors.py         what arithmetic alone would take
    running.py        groups one after the other, what is known kept after each
    machine.py        where that was measured
    record.py         all of it as one JSON file, from which everything shown is drawn
    verdicts.py, table.py, picture.py, scaling_picture.py
    profiling.py      where one contestant's time goes, with power.py: what a GPU draws meanwhile

What is compared is a whole training step: the batch's tokens, forward, backward, Adam. Peers are given every advantage
that costs them nothing: they have no peepholes, clip no gradients and look for no divergence.
"""
