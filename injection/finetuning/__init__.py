"""Fine-tuning sets: clean prompts with outputs, and the members of benchmarks."""
