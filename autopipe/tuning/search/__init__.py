"""The search: the choice of tasks, engines and schedules that are measured next."""
