"""Is it the input?

Measures one trainer with five kinds of input, and says what each part of a step costs.
"""
