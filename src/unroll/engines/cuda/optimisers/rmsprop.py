"""RMSprop in CUDA C++."""

from unroll.model.optimisers.rmsprop import EPSILON, RHO

BEFORE = ""
UPDATE = f"""
moment[0] = moment[0] * {RHO}f + g * g * {1 - RHO}f;
amount = g * rate / sqrtf(moment[0] + {EPSILON}f);
"""
