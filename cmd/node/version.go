package node

// Version is troupe's own version.
const Version = "0.1.0"

// CompatibleVersion is the etcd version whose behaviour this version has. Clients turn features on by it, so it is what
// Status and /version report.
const CompatibleVersion = "3.7.3"

// ClusterVersionCompatible is the version a cluster of such members agrees on.
const ClusterVersionCompatible = "3.7.0"

// StorageVersion is the version of the file's schema.
const StorageVersion = "3.7.0"
