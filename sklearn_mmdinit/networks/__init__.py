"""Networks around theta0: perturbed copies of any module, drawn by any of three samplers."""
