"""Adam in CUDA C++."""

import math

from unroll.model.optimisers.adam import BETA1, BETA2, EPSILON

BEFORE = f"factor[0] = -expm1f(count * {math.log(BETA1)!r}f); factor[1] = -expm1f(count * {math.log(BETA2)!r}f);"
UPDATE = f"""
moment[0] += (g - moment[0]) * {1 - BETA1}f;
moment[1] = moment[1] * {BETA2}f + g * g * {1 - BETA2}f;
amount = rate * (moment[0] / factor[0]) / (sqrtf(moment[1] / factor[1]) + {EPSILON}f);
"""
