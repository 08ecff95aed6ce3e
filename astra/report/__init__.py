"""One run as pages to look at: what became of what, why, for how much, and every record that was made."""
