"""Which hosts hold which bytes of a file: from a table, MooseFS, HDFS or a mount."""
