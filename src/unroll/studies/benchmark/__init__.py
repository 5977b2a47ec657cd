"""Unroll against its peers, on this machine, side by side in one process. In the order of the data:

    shapes.py         what is trained: an architecture under a training procedure
    numerics.py       the precisions, and how torch keeps to one
    replay.py         a training step as a CUDA graph
    peers.py          what a user of torch would write instead, one class a way
    contestants.py    Unroll and the peers behind one `step()`
    plan.py           which contestants meet over which shapes
    heats.py          their times, block by block in alternating order
    floors.py         what arithmetic alone would take
    measurement.py    groups one after the other; the record is kept after each
    machine.py        the machine that measured
    record.py         a measurement as one JSON file; every table and picture is drawn from it
    verdicts.py, table.py, picture.py, scaling_picture.py
    profiling.py      where one contestant's time goes; power.py: what a GPU draws meanwhile

The comparison times a whole training step: the batch's tokens, forward, backward, Adam. Peers get every advantage that
costs them nothing: they have no peepholes, clip no gradients and look for no divergence.
"""
