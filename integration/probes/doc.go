// Package probes holds the tests of what orchestrators and monitoring ask: /livez, /readyz and /health on every port,
// against the real etcd, with alarms and under load. It has no code outside its tests.
package probes
