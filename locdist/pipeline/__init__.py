"""THE PIPELINE: a file with named steps, its schema, and how the steps become jobs."""
