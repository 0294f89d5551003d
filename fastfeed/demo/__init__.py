"""A complete demo: generated photographs, a small classifier, and a feed that connects them.

photos           generates photographs of landmarks, which landmarks paints
classifier       a small convolutional network
"""
