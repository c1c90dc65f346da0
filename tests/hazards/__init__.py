"""Known mistakes, planted one by one: each makes a named check fail."""
