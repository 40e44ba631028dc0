"""cuBLASLt's products of matrices, where filters have one tap."""
