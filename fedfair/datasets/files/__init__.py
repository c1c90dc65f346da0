"""Files with tables: text, Parquet, workbooks, JSON, whole or some rows at a time."""
