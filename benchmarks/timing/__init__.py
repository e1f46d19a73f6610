"""Seconds and bytes: the step beside its textbook form and its floor, its growth, fine-tuning.

What is compared is first shown to agree, and then timed in turns; ``library_step`` alone looks
inside the package.
"""
