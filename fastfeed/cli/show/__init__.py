"""`fastfeed show`: a contact sheet of augmented images."""
