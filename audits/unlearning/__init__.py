"""What an unlearned model still knows, beside the model before and a clean twin."""
