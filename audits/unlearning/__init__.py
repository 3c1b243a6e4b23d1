"""The audit of unlearning: what an unlearned model still knows, compared with a clean twin."""
