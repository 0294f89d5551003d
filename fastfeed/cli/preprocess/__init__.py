"""`fastfeed preprocess` and its subcommands."""
