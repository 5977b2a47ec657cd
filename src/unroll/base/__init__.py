"""What everything stands on: errors, plug-ins, whole files, locks, limits, randomness, the cache, the version."""
