"""Other ways to use unlabelled rows: starts of a network, and classifiers without one.

Functions and estimators of arrays alone; what they are measured on is none of their business.
"""
