"""The stages of `forecast`: where each series lies, and what follows it."""
