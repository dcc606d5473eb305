"""THE JOBS: a file per verb; what verbs share lies in `asking` (answers) and `telling` (words)."""
