"""`fastfeed prove`: measures inside an unchanged trainer, on one or many ranks."""
