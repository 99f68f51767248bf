"""Where schedules come from: engines and the policy that chooses among them."""
