"""The stages of `backfit`."""
