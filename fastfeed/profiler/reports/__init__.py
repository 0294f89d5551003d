"""Reports of an analysis. They only present a `Result`: no analysis happens here."""
