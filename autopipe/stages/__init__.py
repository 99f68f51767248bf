"""One file a stage, in the order of the flow."""
