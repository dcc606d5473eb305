"""The mathematics: neighborhoods, kernels, local models and the one operation that joins them.

Tensors in, tensors out; no I/O.
"""
