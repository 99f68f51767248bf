"""Child processes: started, bounded, listened to and ended."""
