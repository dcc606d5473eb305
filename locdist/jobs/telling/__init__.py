"""What the verbs share that tell people about jobs: metrics, explanations, plans, text and JSON."""
