package node

// Version is troupe's own version.
const Version = "0.1.0"

// CompatibleVersion is the etcd version whose behaviour this version has. Clients turn features on by it, so it is what
// Status and /version report.
const CompatibleVersion = "3.7.3"
