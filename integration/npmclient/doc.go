// Package npmclient holds the test that uses troupe from another language: a script for Node.js with the npm package
// etcd3, run against troupe and etcd. It has no code outside its tests.
package npmclient
