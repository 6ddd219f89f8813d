"""What two or more services need. Knows none of them: ``core`` imports nothing from its sister packages."""
