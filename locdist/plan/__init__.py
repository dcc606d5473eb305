"""The plan: what to compute, never where; and the records of what is finished."""
