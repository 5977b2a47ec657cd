"""Which settings suit a corpus, from short trainings of it."""
