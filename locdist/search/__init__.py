"""THE NEIGHBORS: exact search, and immutable index generations searched by FAISS."""
