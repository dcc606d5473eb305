"""The machines: where to compute; attempts, resuming and events are written once, in `executor.py`."""
