"""Fusion: decide which ops become one function, and so one task.

TVM's `FuseOps` groups the ops first. `keep_apart` prevents groups that TVM cannot merge. `scope`
then changes the groups: by the user's rules (`fusion_rules`, which finds `chains` of ops), and by
splitting groups that no engine can schedule. `graph_steps` and `grouping` describe the graph in
plain values; `regroup` builds the functions of the new groups.
"""
