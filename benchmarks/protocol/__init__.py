"""What is measured, and how: binary tasks, methods and rivals, the appendix, commands."""
