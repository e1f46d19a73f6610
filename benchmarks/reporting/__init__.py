"""From measurements to what people read: tables and pictures, beside the paper's own figures.

Everything here is a function of results that are written down; nothing is measured here.
"""
