"""What is behind `Table`: readers of CSV, JSON lines and Parquet, what columns mean, and where the
images are.
"""
