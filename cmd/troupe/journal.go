package main

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalWriter gives lines to the systemd journal, each as one entry with its level as the priority.
type journalWriter struct {
	send func(message string, priority journal.Priority, fields map[string]string) error
}

func openJournal() (io.Writer, error) {
	if !journal.Enabled() {
		return nil, errors.New("can't find journal: --log-outputs=systemd/journal needs systemd's socket " +
			"/run/systemd/journal/socket")
	}
	return journalWriter{send: journal.Send}, nil
}

var journalPriorities = map[string]journal.Priority{
	"debug": journal.PriDebug, "info": journal.PriInfo, "warn": journal.PriWarning, "error": journal.PriErr,
	"panic": journal.PriCrit, "fatal": journal.PriCrit,
}

// Write implements io.Writer for one line.
func (w journalWriter) Write(line []byte) (int, error) {
	var head struct{ Level string }
	priority := journal.PriInfo
	if json.Unmarshal(line, &head) == nil {
		if p, ok := journalPriorities[head.Level]; ok {
			priority = p
		}
	}
	if err := w.send(string(line), priority, map[string]string{"SYSLOG_IDENTIFIER": "troupe"}); err != nil {
		return 0, err
	}
	return len(line), nil
}
