"""The fusing compiler: recorded operator calls become a few generated loops and library calls.

lower      calls -> loops over elements (arithmetic from the op records) and operator calls that stay as they are
schedule   loops -> groups that run as one kernel each
cpp        a group -> C++ source that holds for every size
build      sources -> a shared object, kept on disk by its content
plan       groups and calls -> the steps of a native program
compile_fx all of it, for each geometry of the inputs that a function meets
"""
