"""From a run to text: prompts, controls, streams, beams, stop strings."""
