"""MIDI files in and out."""
