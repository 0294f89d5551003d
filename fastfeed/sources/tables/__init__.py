"""Parts of `Table`: readers of CSV, JSON lines and Parquet, parsers of columns, images."""
