"""What the tasks of `label` do."""
