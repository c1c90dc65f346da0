"""The same rounds in this program and in others: each a command that prints one line of JSON, milliseconds a round."""
