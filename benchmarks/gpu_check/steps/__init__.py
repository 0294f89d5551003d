"""One module per question, each with `run(context)`, in the order of `table`."""
