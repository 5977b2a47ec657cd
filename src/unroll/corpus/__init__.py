"""From a path or a name to batch i: sources, tokens, ids, the split, batches."""
