"""Digitization: preservation masters to access copies and preservation events."""
