"""Seconds and bytes of the library's step and of fine-tuning, beside what they are compared with.

What is compared is first shown to agree, and then timed in turns. Only public names are used.
"""
