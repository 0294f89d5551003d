"""What tests share: made-up files, servers, stand-ins, examples of every op."""
