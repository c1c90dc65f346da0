"""How the columns of a table are read: conventions, written numbers, kinds of columns."""
