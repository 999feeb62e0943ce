"""The store in an etcd cluster, shared by several servers."""
