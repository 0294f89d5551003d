"""Data model of a preprocess job: recipe, plan, records, reports."""
