"""THE METHODS: named, frozen choices of kernel, model and loop; they never see data."""
