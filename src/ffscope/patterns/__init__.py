"""What the triggers of a memory have in common, found by machine. No torch but where prefixes are embedded."""
