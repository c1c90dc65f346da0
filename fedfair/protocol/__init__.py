"""What travels between server and nodes: task, round and messages."""
