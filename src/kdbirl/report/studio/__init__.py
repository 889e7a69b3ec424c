"""The studio: a page on this machine alone that lists runs, opens their reports and compares two posteriors."""
