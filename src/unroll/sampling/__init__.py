"""From a run to text."""
