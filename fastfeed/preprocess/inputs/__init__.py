"""Opens what a user names as photographs with labels and metadata columns, and reads their bytes
ahead.
"""
