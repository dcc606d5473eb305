"""The data: Arrow partitions, where they live, what their columns mean and how they become matrices.

Nothing here knows what a neighbor is. Files are described by their footers alone (`source`), read in batches
bounded by bytes, and every column becomes a matrix through one door (`columns`), with the scaling and the
vocabulary that were fitted once (`encoding`).
"""
