"""Figures and reports of a posterior."""
