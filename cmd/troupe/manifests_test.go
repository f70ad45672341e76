package main

import (
	"strings"
	"testing"
)

// sampleFile is the file that etcd is packaged with.
const sampleFile = `
# This is the configuration file for the etcd server.
name: 'default'
data-dir:
wal-dir:
snapshot-count: 10000
heartbeat-interval: 100
election-timeout: 1000
quota-backend-bytes: 0
listen-peer-urls: http://localhost:2380
listen-client-urls: http://localhost:2379
max-snapshots: 5
max-wals: 5
cors:
initial-advertise-peer-urls: http://localhost:2380
advertise-client-urls: http://localhost:2379
discovery:
discovery-fallback: 'exit'
discovery-proxy:
discovery-srv:
initial-cluster:
initial-cluster-token: 'etcd-cluster'
initial-cluster-state: 'new'
strict-reconfig-check: false
enable-pprof: true
client-transport-security:
  cert-file:
  key-file:
  client-cert-auth: false
  trusted-ca-file:
  auto-tls: false
peer-transport-security:
  cert-file:
  key-file:
  client-cert-auth: false
  trusted-ca-file:
  auto-tls: false
  allowed-cn:
  allowed-hostname:
self-signed-cert-validity: 1
log-level: debug
logger: zap
log-outputs: [stderr]
force-new-cluster: false
auto-compaction-mode: periodic
auto-compaction-retention: "1"
`

// Command lines, environments and files as they are found around etcd, for one member without TLS. All must be taken
// as they are.
func TestParse_WhatIsFoundInManifestsIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		args    string
		environ []string
		file    string
	}{
		"container, as documented": {args: "--name s1 --data-dir /etcd-data --listen-client-urls http://0.0.0.0:2379 " +
			"--advertise-client-urls http://0.0.0.0:2379 --listen-peer-urls http://0.0.0.0:2380 " +
			"--initial-advertise-peer-urls http://0.0.0.0:2380 --initial-cluster s1=http://0.0.0.0:2380 " +
			"--initial-cluster-token tkn --initial-cluster-state new --log-level info --logger zap --log-outputs stderr"},
		"test container": {args: "-name etcd0 -listen-client-urls=http://0.0.0.0:2379 " +
			"-advertise-client-urls=http://0.0.0.0:2379"},
		"control plane": {args: "--advertise-client-urls=http://10.0.0.1:2379 --data-dir=/var/lib/etcd " +
			"--feature-gates=InitialCorruptCheck=true --initial-advertise-peer-urls=http://10.0.0.1:2380 " +
			"--initial-cluster=cp=http://10.0.0.1:2380 --listen-client-urls=http://127.0.0.1:2379,http://10.0.0.1:2379 " +
			"--listen-metrics-urls=http://127.0.0.1:2381 --listen-peer-urls=http://10.0.0.1:2380 --name=cp " +
			"--snapshot-count=10000 --watch-progress-notify-interval=5s --peer-client-cert-auth=false"},
		"compose file": {environ: []string{"ALLOW_NONE_AUTHENTICATION=yes", "ETCD_NAME=m", "ETCD_DATA_DIR=/data",
			"ETCD_LISTEN_CLIENT_URLS=http://0.0.0.0:2379", "ETCD_ADVERTISE_CLIENT_URLS=http://etcd:2379",
			"ETCD_LISTEN_PEER_URLS=http://0.0.0.0:2380", "ETCD_INITIAL_ADVERTISE_PEER_URLS=http://etcd:2380",
			"ETCD_INITIAL_CLUSTER=m=http://etcd:2380", "ETCD_INITIAL_CLUSTER_STATE=new", "ETCD_ENABLE_V2=true",
			"ETCD_CERT_FILE=", "ETCD_ROOT_PASSWORD="}},
		"flags and environment": {args: "-advertise-client-urls=http://etcd:2379 " +
			"-listen-client-urls http://0.0.0.0:2379 --data-dir /etcd",
			environ: []string{"ETCD_AUTO_COMPACTION_MODE=revision", "ETCD_AUTO_COMPACTION_RETENTION=1000",
				"ETCD_QUOTA_BACKEND_BYTES=4294967296", "ETCD_SNAPSHOT_COUNT=50000"}},
		"sample file": {file: sampleFile},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if c.file != "" {
				_, err = fromFile(t, c.file, nil, nil)
			} else {
				_, err = parse(strings.Fields(c.args), c.environ)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
