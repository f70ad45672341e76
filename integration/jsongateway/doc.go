// Package jsongateway holds the tests of the JSON gateway and of the rules for plain HTTP: each request goes to troupe
// and to etcd, and the answers are compared; what troupe does better than etcd is tested by itself.
package jsongateway
