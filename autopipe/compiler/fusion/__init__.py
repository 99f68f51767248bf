"""Decides which ops become one function, and so what a task is.

TVM's `FuseOps` groups the ops first. `growth` keeps one kind of group from being made, `scope` then
changes the groups: by the user's rules (`fusion_rules`, which finds `chains` of ops), and by
splitting what no engine can schedule. `unfused` and `grouping` describe the graph in plain values;
`regroup` makes the functions of the new groups.
"""
