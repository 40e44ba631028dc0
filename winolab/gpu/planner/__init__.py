"""Which kernel runs a problem; pure Python, no GPU needed."""
