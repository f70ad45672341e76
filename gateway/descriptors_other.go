//go:build !unix

package gateway

// descriptorLimit is not known here.
func descriptorLimit() float64 { return 0 }
