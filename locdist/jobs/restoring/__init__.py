"""The parts of `restore`: its tasks, what they cost, and its plan."""
