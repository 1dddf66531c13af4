"""Watchdogs: time limits of waits, signs of life of PEs, and messages that name the late PE."""
