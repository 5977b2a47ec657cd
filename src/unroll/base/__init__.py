"""The ground for all rooms: errors, plug-ins, whole files, locks, limits, randomness, the cache, the version."""
