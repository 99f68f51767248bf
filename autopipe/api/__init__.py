"""The Python API: functions that the command line and Python programs call."""
