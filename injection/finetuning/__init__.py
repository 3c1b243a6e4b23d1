"""Fine-tuning sets: prompts with their outputs, clean ones and a benchmark's members."""
