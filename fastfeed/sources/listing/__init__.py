"""Which files there are: walking local and remote trees, resumable listings.

listing          lists all images below a root: local_tree or remote_tree; class_folders: which are
classes file_table       paths, sizes and versions of many files as arrays; listing_file reads and
writes them journal          a listing in progress, from which an interrupted one resumes; progress
shows it left_out         counts files that are no samples; shared_files finds files that links make
part of two classes
"""
