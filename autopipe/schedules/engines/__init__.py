"""Who proposes schedules."""
