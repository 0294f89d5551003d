"""Terminal output shared by commands: streams, tables, help, usage errors."""
