"""The fixtures that all tests share."""

pytest_plugins = ["tests.leaks", "tests.small_build"]
