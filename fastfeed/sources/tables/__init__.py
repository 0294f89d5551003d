"""What is behind `Table`: readers of CSV, JSON lines and Parquet, what columns mean, and where the
images are.

open_table       opens a table as arrays, cached in a file (mmap_arrays) if that takes long
read_files       finds the files and reads their columns: csv_jsonl, parquet with parquet_footer and
                 arrow; hive is for folders that partition a table
columns          what columns mean: images, labels; annotations: weights, boxes, metadata;
parse_numbers, string_column images           what Table needs of them; image_files: named by path
or URL, or in base64 (inline_images);
                 row_group_images: stored in Parquet
access           which files and addresses a table may name; guarded_http checks redirects
"""
