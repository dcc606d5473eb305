"""The stages of `cluster`: rows climb, the places where they end are merged, rows are labelled."""
