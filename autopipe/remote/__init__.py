"""What machines share: a place that holds results and tuning records, and is never an authority."""
