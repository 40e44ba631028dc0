"""The command ``winolab``: a short module a command."""
