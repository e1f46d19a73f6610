"""The steps of ``tour.py``: parts of the public interface, which are used and checked.

A step takes the tour so far, prints a few lines and returns its claims, each True or False.
"""
