"""THE JOBS: a file per verb."""
