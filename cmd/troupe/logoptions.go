package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/natefinch/lumberjack.v2"
)

// The words of --log-outputs that are no file paths.
const (
	outputDefault = "default"
	outputStderr  = "stderr"
	outputStdout  = "stdout"
	outputJournal = "systemd/journal"
)

const formatConsole = "console"

const logRotationDefault = `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`

// logOptions are the flags of the log.
type logOptions struct {
	logger   string
	outputs  string
	level    string
	format   string
	rotate   bool
	rotation string
}

func defaultLogOptions() logOptions {
	return logOptions{
		logger: "zap", outputs: outputDefault, level: "info", format: "json", rotation: logRotationDefault,
	}
}

var logLevels = []string{"debug", "info", "warn", "error", "panic", "fatal"}

// plainLevel is a level as logLevels has it. etcd takes any case, two further words, and nothing for info.
func plainLevel(word string) string {
	switch word = strings.ToLower(word); word {
	case "":
		return "info"
	case "warning":
		return "warn"
	case "dpanic":
		return "panic"
	}
	return word
}

// validate says what is wrong, in etcd's words where it has any.
func (l *logOptions) validate() error {
	switch {
	case l.logger == "capnslog":
		return errors.New("--logger=capnslog is removed in v3.5: use zap")
	case l.logger != "zap":
		return fmt.Errorf("unknown logger option %q: --logger is zap", l.logger)
	case l.format != "" && l.format != "json" && l.format != formatConsole:
		return fmt.Errorf("unknown log format: %s, supported values json, console", l.format)
	case !slices.Contains(logLevels, plainLevel(l.level)):
		return fmt.Errorf("unrecognized level: %q: --log-level is one of %s", l.level, strings.Join(logLevels, ", "))
	}
	targets, files := l.targets()
	for _, target := range targets {
		switch {
		case target == "":
			return errors.New("--log-outputs has an empty name: give default, stderr, stdout, systemd/journal or file paths")
		case target == outputDefault && len(targets) > 1:
			return errors.New(`multi logoutput for "default" is not supported yet: name stderr instead`)
		}
	}
	if !l.rotate {
		return nil
	}
	if len(files) != 1 {
		return fmt.Errorf("--log-outputs requires a single file path when --log-rotate-config-json is defined "+
			"(--log-outputs=%s has %d)", l.outputs, len(files))
	}
	_, err := l.rotationOf(files[0])
	return err
}

// targets are the names in --log-outputs, each once, and those of them that are files.
func (l *logOptions) targets() (targets, files []string) {
	for target := range strings.SplitSeq(l.outputs, ",") {
		target = strings.TrimSpace(target)
		if slices.Contains(targets, target) {
			continue
		}
		targets = append(targets, target)
		switch target {
		case outputDefault, outputStderr, outputStdout, outputJournal, "":
		default:
			files = append(files, target)
		}
	}
	return targets, files
}

// rotationOf reads --log-rotation-config-json for a file.
func (l *logOptions) rotationOf(path string) (*lumberjack.Logger, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(l.rotation), &keys); err != nil {
		return nil, fmt.Errorf("improperly formatted log rotation config: %w: --log-rotation-config-json is like %s",
			err, logRotationDefault)
	}
	r := &lumberjack.Logger{Filename: path}
	fields := map[string]any{"maxsize": &r.MaxSize, "maxage": &r.MaxAge, "maxbackups": &r.MaxBackups,
		"localtime": &r.LocalTime, "compress": &r.Compress}
	names := slices.Sorted(maps.Keys(fields))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		field, known := fields[strings.ToLower(key)]
		if !known {
			return nil, fmt.Errorf("invalid log rotation config: unknown key %q%s", key, didYouMeanOneOf(key, names))
		}
		if err := json.Unmarshal(keys[key], field); err != nil {
			return nil, fmt.Errorf("invalid log rotation config: %s: %w", key, err)
		}
	}
	for name, n := range map[string]int{"maxsize": r.MaxSize, "maxage": r.MaxAge, "maxbackups": r.MaxBackups} {
		if n < 0 {
			return nil, fmt.Errorf("invalid log rotation config: %s must not be negative (set to %d)", name, n)
		}
	}
	return r, nil
}
