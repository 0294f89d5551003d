"""`fastfeed doctor`: facts about this machine, and advice on what to install or fix."""
