package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// LogLevel is how the level of the log is read and changed while the process runs. Its methods may be called by any
// goroutine.
type LogLevel interface {
	// Level is the name of the level.
	Level() string
	// SetLevel changes it; an unknown name is an error that lists the known ones, and changes nothing.
	SetLevel(name string) error
}

// logLevelBytesMax bounds the body of a change: names of levels are short.
const logLevelBytesMax = 64

// serveLogLevel tells the level, and changes it to the name in the body of a PUT. That is done on debug ports only:
// the client port has no say in what the operator's log holds.
func (s *Server) serveLogLevel(changeable bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
		case r.Method != http.MethodPut:
			w.Header().Set("Allow", "GET, PUT")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		case !changeable:
			http.Error(w, "the log level is changed on a debug port only (--debug-listen-urls)", http.StatusForbidden)
			return
		default:
			if !s.changeLogLevel(w, r) {
				return
			}
		}
		fmt.Fprintln(w, s.cfg.LogLevel.Level())
	}
}

func (s *Server) changeLogLevel(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, logLevelBytesMax))
	before := s.cfg.LogLevel.Level()
	if err == nil {
		err = s.cfg.LogLevel.SetLevel(strings.TrimSpace(string(body)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	s.cfg.Log.Warn().Str("before", before).Str("now", s.cfg.LogLevel.Level()).Str("client", r.RemoteAddr).
		Msg("the log level was changed")
	return true
}
