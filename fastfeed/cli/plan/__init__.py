"""`fastfeed plan`: order, files and steps of a feed, without reading images."""
