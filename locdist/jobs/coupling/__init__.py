"""What the tasks of `couple` and `apply` do."""
