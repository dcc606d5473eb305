"""What the verbs share that answer every row of a source: one output row for each, exactly once."""
