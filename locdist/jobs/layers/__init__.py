"""The stages of `move`: an index and moved rows for each layer, then the rows in the user's units."""
