"""What is measured, and how: binary tasks, methods and rivals, the appendix, commands.

A score is one ``cross_val_score`` on rows that follow from the seed. Every score and every
learned theta0 is kept on disk, with what it was made with, so that no command does its work twice.
"""
