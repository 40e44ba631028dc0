"""What the command shows: tables that fit a screen, formats, JSON."""
