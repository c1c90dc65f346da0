"""From the columns of a table, or images, to the features of a model."""
