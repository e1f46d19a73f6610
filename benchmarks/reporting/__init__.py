"""From measurements to what people read; nothing is measured here."""
