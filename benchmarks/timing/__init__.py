"""Seconds and bytes of the step and of fine-tuning, beside what they are compared with."""
