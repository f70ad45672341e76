package main

import (
	"flag"
	"slices"
)

// waitingFlags are etcd's flags that shape a feature which is not in this version and do not turn it on, with the
// feature. Their values are checked as etcd checks them and kept; a manifest that sets one must start.
var waitingFlags = map[string]string{
	"bcrypt-cost":                       "authentication",
	"auth-token-ttl":                    "authentication",
	"self-signed-cert-validity":         "TLS",
	"distributed-tracing-address":       "tracing",
	"distributed-tracing-service-name":  "tracing",
	"distributed-tracing-instance-id":   "tracing",
	"distributed-tracing-sampling-rate": "tracing",
}

func declareWaiting(fs *flag.FlagSet, o *options) {
	w := &o.node.Waiting
	fs.UintVar(&w.BcryptCost, "bcrypt-cost", w.BcryptCost,
		"Cost of hashing a password, 4 to 31; etcd takes its default for others.")
	fs.UintVar(&w.AuthTokenTTL, "auth-token-ttl", w.AuthTokenTTL, "Life of a simple token, in seconds.")
	fs.UintVar(&w.SelfSignedCertValidity, "self-signed-cert-validity", w.SelfSignedCertValidity,
		"Validity of the certificates that --auto-tls makes, in years.")
	fs.StringVar(&w.TracingAddress, "distributed-tracing-address", w.TracingAddress, "Where traces are sent.")
	fs.StringVar(&w.TracingServiceName, "distributed-tracing-service-name", w.TracingServiceName,
		"Name of the service in traces, the same on all members.")
	fs.StringVar(&w.TracingInstanceID, "distributed-tracing-instance-id", w.TracingInstanceID,
		"Name of this member in traces.")
	fs.IntVar(&w.TracingSamplingRate, "distributed-tracing-sampling-rate", w.TracingSamplingRate,
		"How many of a million requests are traced.")
}

// warnOfWaiting names the flags whose value is kept for later, and what they wait for.
func (o *options) warnOfWaiting() {
	declared := flag.NewFlagSet("", flag.ContinueOnError)
	declareWaiting(declared, o)
	standard := flag.NewFlagSet("", flag.ContinueOnError)
	declareWaiting(standard, defaultOptions())
	var names []string
	for name := range waitingFlags {
		if o.set[name] && declared.Lookup(name).DefValue != standard.Lookup(name).DefValue {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		o.warn("--%s=%s is kept and has no effect yet: this version of troupe has no %s", name,
			declared.Lookup(name).DefValue, waitingFlags[name])
	}
}
