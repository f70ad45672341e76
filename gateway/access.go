package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// anyone in a list of hosts or origins allows all.
const anyone = "*"

// access decides which HTTP requests of the client port are answered (--host-whitelist), and whose pages a browser lets
// read the answers (--cors).
type access struct {
	// hosts and origins are what is allowed; nil allows all.
	hosts, origins map[string]struct{}
}

func newAccess(hosts, origins []string) *access {
	a := &access{}
	if len(hosts) > 0 && !slices.Contains(hosts, anyone) {
		a.hosts = make(map[string]struct{}, len(hosts))
		for _, host := range hosts {
			a.hosts[host] = struct{}{}
		}
	}
	if len(origins) > 0 && !slices.Contains(origins, anyone) {
		a.origins = make(map[string]struct{}, len(origins))
		for _, origin := range origins {
			a.origins[withoutDefaultPort(origin)] = struct{}{}
		}
	}
	return a
}

// withoutDefaultPort writes an origin as browsers do. --cors takes URLs with a port only, so that otherwise no origin
// on a default port could be allowed.
func withoutDefaultPort(origin string) string {
	for scheme, port := range map[string]string{"http://": ":80", "https://": ":443"} {
		if strings.HasPrefix(origin, scheme) {
			return strings.TrimSuffix(origin, port)
		}
	}
	return origin
}

// hostAllowed reports whether a request names a host that is allowed. A page that has its own name point at this
// machine (DNS rebinding) cannot lie about it. Whoever speaks TLS has checked the name against the certificate.
func (a *access) hostAllowed(r *http.Request) bool {
	if a.hosts == nil || r.TLS != nil {
		return true
	}
	_, ok := a.hosts[hostOf(r)]
	return ok
}

// hostOf is the host that a request names, without the port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		return r.Host
	}
	return host
}

// originAllowed reports whether pages of an origin may read answers.
func (a *access) originAllowed(origin string) bool {
	if a.origins == nil {
		return true
	}
	_, ok := a.origins[withoutDefaultPort(origin)]
	return ok
}

// sameOrigin reports whether a request comes from no page, from a page of this server, or from one that may read
// answers. Browsers let every page open websockets and read them: for those the server itself has to look.
func (a *access) sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || a.originAllowed(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// guardHost refuses requests that name another host.
func (a *access) guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.hostAllowed(r) {
			http.Error(w, fmt.Sprintf("The Host header of this request names %q, which --host-whitelist does not list.\n"+
				"Add it there, or use TLS. The list keeps web pages from reaching this member through a name of their own "+
				"(DNS rebinding, CVE-2018-5702).", hostOf(r)), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowOrigins sets the headers by which browsers let pages of other origins read the answers, and answers their
// question in advance. The debug pages are left out: an operator's browser should not hand a member's keys to whatever
// site is open in the next tab.
func (a *access) allowOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/debug/") {
			next.ServeHTTP(w, r)
			return
		}
		allowed := anyone
		h := w.Header()
		if a.origins != nil {
			allowed = r.Header.Get("Origin")
			h.Set("Vary", "Origin")
		}
		if a.originAllowed(allowed) {
			h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
			h.Set("Access-Control-Allow-Origin", allowed)
			h.Set("Access-Control-Allow-Headers", "accept, content-type, authorization")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		next.ServeHTTP(w, r)
	})
}
